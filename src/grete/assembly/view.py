"""What the HTTP server and the progress display show of a running coordinator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import read_commits
from grete.config.redact import redact
from grete.coordinator.loop import CoordinatorLoop
from grete.coordinator.metadata_manager import GROUP, MetadataMetrics
from grete.errors import Fenced
from grete.keyed_log.base import KeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.model.ids import ContainerId, JobId
from grete.model.job import JobModel
from grete.wire import job_model_json


class View:
    """Implements `server.app.CoordinatorView`. Thread-safe: the model is immutable, the rest under a lock."""

    def __init__(
        self,
        job: JobId,
        config: Mapping[str, str],
        model: JobModel,
        stream: CoordinatorStream,
        metrics: MetadataMetrics,
        run_id: str,
        epoch: int,
    ) -> None:
        self._job = job
        self._config = config
        self._model = model
        self._stream = stream
        self._metrics = metrics
        self._run_id = run_id
        self._epoch = epoch
        self._lock = threading.Lock()
        self._heartbeats: dict[str, dict[str, Any]] = {}
        self.loop: CoordinatorLoop | None = None
        self.checkpoint_log: Callable[[str], KeyedLog] | None = None

    def is_ready(self) -> bool:
        """Whether containers can be served."""
        return self.loop is not None

    def job_model_document(self) -> bytes:
        """See CoordinatorView. Secrets are masked in the configuration it carries."""
        shown = JobModel(
            redact(self._model.config), self._model.containers, self._model.max_changelog_partitions
        )
        return job_model_json.encode(shown)

    def assignment(self, container_id: str) -> dict[str, Any] | None:
        """See CoordinatorView."""
        container = self._model.containers.get(ContainerId(container_id))
        if container is None or self.loop is None:
            return None
        return {
            "job": {"name": self._job.name, "id": self._job.id},
            "container_id": container_id,
            "epoch": self.loop.board.epochs.get(container.id, 0),
            "run_id": self._run_id,
            "config": dict(self._config),
            "tasks": [
                {
                    "name": task.name,
                    "ssps": [
                        {"system": s.system, "stream": s.stream, "partition": s.partition} for s in task.ssps
                    ],
                    "changelog_partition": task.changelog_partition,
                }
                for task in container.tasks.values()
            ],
        }

    def heartbeat(self, container_id: str, body: dict[str, Any]) -> str:
        """See CoordinatorView."""
        board = self.loop.board if self.loop is not None else None
        if board is None or ContainerId(container_id) not in board.epochs:
            raise Fenced(f"container {container_id}", epoch=int(body["epoch"]), seen=0)
        current = board.epochs[ContainerId(container_id)]
        if int(body["epoch"]) != current:
            raise Fenced(f"container {container_id}", epoch=int(body["epoch"]), seen=current)
        with self._lock:
            self._heartbeats[container_id] = body
        return "stop" if ContainerId(container_id) in board.stopping else "continue"

    def progress(self) -> dict[str, dict[str, Any]]:
        """The last heartbeat of each container."""
        with self._lock:
            return {name: dict(body) for name, body in self._heartbeats.items()}

    def job(self) -> dict[str, Any]:
        """See CoordinatorView."""
        state = self.loop.state if self.loop is not None else None
        return {
            "job": {"name": self._job.name, "id": self._job.id},
            "state": "starting" if state is None else state.phase.value,
            "run_id": self._run_id,
            "epoch": self._epoch,
            "metrics": {name: getattr(self._metrics, name) for name in MetadataMetrics.__slots__},
            "containers": self.progress(),
            "quarantined": [f"offset {q.offset}: {q.reason}" for q in self._stream.quarantined],
        }

    def config(self) -> dict[str, str]:
        """See CoordinatorView."""
        return redact(self._stream.config())

    def history(self) -> list[dict[str, Any]]:
        """See CoordinatorView."""
        return [
            {"number": row.number, "timestamp_ms": row.timestamp_ms, "event": row.event, **row.details}
            for row in History(self._stream).rows()
        ]

    def checkpoints(self) -> dict[str, dict[str, str]]:
        """See CoordinatorView."""
        if self.checkpoint_log is None:
            return {}
        commits = read_commits(self.checkpoint_log(checkpoint_log_name(self._job)).read())
        return {
            task: {str(s): o for s, o in sorted(c.offsets.items())} for task, c in sorted(commits.items())
        }

    def metrics(self) -> str:
        """See CoordinatorView."""
        lines = []
        for name in MetadataMetrics.__slots__:
            metric = f"{GROUP.replace('-', '_')}_{name}"
            kind = "counter" if name == "applicationAttemptCount" else "gauge"
            lines += [f"# TYPE {metric} {kind}", f"{metric} {getattr(self._metrics, name)}"]
        lines.append("# TYPE grete_records_processed_total counter")
        lines += [
            f'grete_records_processed_total{{container="{name}"}} {body.get("records", 0)}'
            for name, body in self.progress().items()
        ]
        return "\n".join(lines) + "\n"
