"""The job's run as its coordinator reports it to OpenLineage: when it begins, each minute, and at its end."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from pathlib import Path
from urllib.parse import urlsplit

from grete.config.settings import Settings
from grete.config.settings.outputs import JDBC, OutputSettings
from grete.coordinator.view import View
from grete.diagnostics.open_lineage import Dataset, LineageEvent, LineageReporter
from grete.errors import GreteError
from grete.model.ids import SystemStream
from grete.spark.session.kafka_options import StreamAddress, sink_settings

_log = logging.getLogger("grete.coordinator")
_EVERY_S = 60.0
_SOON_S = 0.5
_LAST_LOOK_S = 5.0
_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfss": "abfss", "wasbs": "wasbs"}
_DATABASES = {"postgresql": "postgres"}


class LineageRun:
    """Reports the run of a job that is coordinated here. Of one that goes on elsewhere there is no end."""

    def __init__(self, reporter: LineageReporter, view: View, home: Path, *, is_new: bool) -> None:
        """`is_new` is a run that begins here, and goes on for no other coordinator."""
        self._reporter = reporter
        self._view = view
        self._home = home
        self._kind = "START" if is_new else "RUNNING"
        self._is_known = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        pause_s = _SOON_S
        while not self._closed.wait(pause_s):
            if self._view.containers.is_ready():
                pause_s = _EVERY_S
                self._report_progress()

    def _report_progress(self) -> None:
        """The run's beginning for as long as it could not be said, as where checkpoints do not answer."""
        if self._report(self._kind):
            self._is_known, self._kind = True, "RUNNING"

    def _report(self, kind: str, message: str = "") -> bool:
        try:
            self._reporter.send(self._made(kind, message))
            return True
        except Exception as error:  # noqa: BLE001 - of a thread, and at the job's end: it is not the job's doing
            is_ours = isinstance(error, GreteError)
            _log.warning(
                "OpenLineage has no %s of this job's run: %s",
                kind,
                error,
                exc_info=None if is_ours else error,
            )
            return False

    def _made(self, kind: str, message: str) -> LineageEvent:
        settings, model = self._view.containers.serving()
        tasks = [task for container in model.containers.values() for task in container.tasks.values()]
        offsets: dict[str, int] = {}
        for of_task in self._view.checkpoints().values():
            for text, last in of_task.items():
                if last.lstrip("-").isdigit():
                    following = int(last) + 1
                    offsets[text] = min(following, offsets.get(text, following))
        inputs: defaultdict[Dataset, dict[str, str]] = defaultdict(dict)
        for ssp in sorted({ssp for task in tasks for ssp in task.ssps}):
            known = inputs[dataset_of(ssp.system_stream, settings, self._home)]
            if str(ssp) in offsets:
                known[str(ssp.partition)] = str(offsets[str(ssp)])
        return LineageEvent(kind, inputs, self._outputs(settings), message)

    def _outputs(self, settings: Settings) -> list[Dataset]:
        said = [
            SystemStream.parse(one)
            for each in self._view.containers.progress().values()
            for one in each.heartbeat.outputs
        ]
        streams = {*settings.task.own_outputs, *said}
        found = [dataset_of(stream, settings, self._home) for stream in sorted(streams)]
        return [*found, *(table_of(output) for _, output in sorted(settings.outputs.items()))]

    def close(self, kind: str = "", message: str = "") -> None:
        """End; with COMPLETE or FAIL where the run has ended."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_LOOK_S)
        if kind and not self._is_known:
            self._report_progress()
        if kind:
            self._report(kind, message)
        self._reporter.close()


def dataset_of(stream: SystemStream, settings: Settings, home: Path) -> Dataset:
    """A stream, as OpenLineage's listener names a topic.

    Raises:
        ConfigError: the configuration does not say where it is.
    """
    system = settings.system(stream.system)
    if system.capabilities.is_embedded:
        return Dataset(f"file:{system.directory(home).absolute()}", stream.stream)
    address = StreamAddress.of(settings, stream)
    brokers = sink_settings(settings, stream.system, address)["kafka.bootstrap.servers"]
    return Dataset(f"kafka://{brokers.split(',')[0].strip()}", address.topic)


def table_of(output: OutputSettings) -> Dataset:
    """A folder or a table of a database, as OpenLineage's naming has it.

    Raises:
        ConfigError: the configuration does not say where it is.
    """
    if output.format == JDBC:
        url = urlsplit(output.url.removeprefix("jdbc:"))
        database = url.path.strip("/")
        scheme = _DATABASES.get(url.scheme, url.scheme)
        return Dataset(f"{scheme}://{url.netloc.rpartition('@')[2]}", f"{database}.{output.target_table}")
    path = urlsplit(output.target_path)
    if path.scheme in ("", "file"):
        return Dataset("file", str(Path(path.path).absolute()))
    store = _OBJECT_STORES.get(path.scheme)
    if store is not None:
        return Dataset(f"{store}://{path.netloc}", path.path.strip("/") or "/")
    return Dataset(f"{path.scheme}://{path.netloc}", path.path.rstrip("/") or "/")
