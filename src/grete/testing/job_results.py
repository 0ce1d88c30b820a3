"""The results of a job: outputs, dead letters, stores, checkpoints. Read as any other program would."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from grete.application.expiry import without_expired
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.clock import Clock
from grete.config.settings import Settings
from grete.errors import ConfigError, IllegalStateError
from grete.keyed_log.base import KeyedLog
from grete.model.ids import SystemStream, TaskName
from grete.model.job import JobModel
from grete.model.streams import Headers
from grete.serdes import store_serdes, stream_serdes
from grete.suggestions import or_one_of
from grete.systems.local.system import LocalSystem
from grete.systems.records import rows_of


class OutputMessage(NamedTuple):
    """A message in a stream. `key` and `message` have passed the stream's serdes."""

    partition: int
    offset: int
    key: Any
    message: Any
    timestamp_ms: int
    headers: Headers = ()


class JobResults:
    """The streams of a job. `model` is set once it was started."""

    def __init__(self, settings: Settings, system: LocalSystem, clock: Clock) -> None:
        self._settings = settings
        self._system = system
        self._now_ms = clock.wall_ms
        self._model: JobModel | None = None

    @property
    def model(self) -> JobModel:
        """The job model.

        Raises:
            IllegalStateError: the job was never started.
        """
        if self._model is None:
            raise IllegalStateError("the job was never started: use it in a `with`, or call start()")
        return self._model

    def outputs(self, stream: str, *, partition: int | None = None) -> list[OutputMessage]:
        """Everything in `system.stream`, partition after partition, each in order."""
        serdes = stream_serdes(SystemStream.parse(stream), self._settings)
        key_of, message_of = serdes.key.from_bytes, serdes.message.from_bytes
        found = []
        for number in range(self._system.partition_count(stream_name(stream))):
            if partition not in (None, number):
                continue
            for first, batch in self._system.read(stream_name(stream), number, 0):
                found += [
                    OutputMessage(number, offset, key_of(key), message_of(value), time_ms, headers)
                    for offset, key, value, time_ms, headers in rows_of(first, batch)
                ]
        return found

    def messages(self, stream: str) -> list[Any]:
        """The messages of `outputs`, without anything else."""
        return [output.message for output in self.outputs(stream)]

    def dead_letters(self) -> list[dict[str, Any]]:
        """The messages that were put aside: task, ssp, offset, error, key_base64, value_base64.

        Raises:
            ConfigError: the job has no dead-letter stream.
        """
        stream = self._settings.task.dead_letters
        if stream is None:
            raise ConfigError("the job has no dead letters: set task.poison.dead-letter.stream")
        return [
            orjson.loads(value)
            for partition in range(self._system.partition_count(stream.stream))
            for _, batch in self._system.read(stream.stream, partition, 0)
            for value in batch.column(1).to_pylist()
        ]

    def store(self, name: str, task: str) -> dict[Any, Any]:
        """The content of a task's store, as committed: read from its changelog, which is the truth.

        Raises:
            ConfigError: no such store.
            IllegalStateError: no such task.
        """
        settings, own = self._settings, self._settings.known_store(name)
        model = self.model.tasks.get(TaskName(task))
        if model is None:
            raise IllegalStateError(
                f"there is no task {task!r}{or_one_of(task, self.model.tasks, 'there are')}"
            )
        stream, partition = own.changelog_stream(settings.job.id), model.changelog_partition
        end = int(self._system.offsets(stream)[partition].upcoming)
        ttl_ms = own.ttl_ms
        content = dict(self._system.changes(stream, partition, 0, end, has_times=ttl_ms is not None))
        living = {key: value for key, value in sorted(content.items()) if value is not None}
        if ttl_ms is not None:
            living = without_expired(living, ttl_ms, self._now_ms())
        serdes = store_serdes(name, settings)
        return {serdes.key.from_bytes(key): serdes.message.from_bytes(value) for key, value in living.items()}

    def checkpoints(self) -> dict[str, dict[str, int]]:
        """The last processed offset by task and `system.stream.partition`."""
        return {
            task: {str(ssp): int(offset) for ssp, offset in sorted(commit.offsets.items())}
            for task, commit in sorted(self._commits().items())
        }

    def _commits(self) -> dict[TaskName, TaskCommit]:
        return read_commits(self._checkpoint_log().read())

    def _checkpoint_log(self) -> KeyedLog:
        return self._system.checkpoint_log(checkpoint_log_name(self._settings.job.id))

    def close_streams(self) -> None:
        """Close the files."""
        self._system.close()


def stream_name(stream: str) -> str:
    """The stream's name within its system."""
    return SystemStream.parse(stream).stream
