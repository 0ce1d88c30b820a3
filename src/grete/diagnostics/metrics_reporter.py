"""Publishes snapshots of a process's metrics to a stream (Samza's MetricsSnapshotReporter)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from grete import __version__
from grete.clock import Clock, SystemClock
from grete.config.settings import Settings
from grete.config.settings.metrics import SnapshotReporter
from grete.diagnostics.background_writer import BackgroundWriter
from grete.diagnostics.diagnostics_message import Header, with_type_tags
from grete.diagnostics.streams import log_stream
from grete.model.ids import JobId
from grete.systems.base import Message
from grete.systems.log_sink import open_sink

Snapshot = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Source -> group -> name -> value. Samza's sources are `samza-container-0` and `TaskName-Partition 0`."""


class MetricsSnapshotReporter:
    """Publishes one message a source when it begins, every interval, and at its end.

    The stream is written by a thread of its own: what cannot be written is lost, and nothing waits for it.
    """

    def __init__(
        self,
        reporter: SnapshotReporter,
        header: Header,
        take: Callable[[], Snapshot],
        writer: BackgroundWriter[Message],
        clock: Clock,
    ) -> None:
        self._reporter = reporter
        self._header = header
        self._take = take
        self._writer = writer
        self._clock = clock
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"metrics {reporter.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        self.report()
        while not self._closed.wait(self._reporter.interval_s):
            self.report()

    def report(self) -> None:
        """Offer a message for each source that has metrics."""
        now_ms = self._clock.wall_ms()
        for source, groups in self._take().items():
            metrics = self._shown(groups)
            if metrics:
                document = {"header": self._header.document(source, now_ms), "metrics": metrics}
                if self._reporter.has_type_tags:
                    document = with_type_tags(document)
                self._writer.offer(Message(None, orjson.dumps(document), now_ms))

    def _shown(self, groups: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        left_out = self._reporter.left_out
        shown = {
            group: {
                name: value
                for name, value in metrics.items()
                if left_out is None or not left_out.fullmatch(f"{group}.{name}")
            }
            for group, metrics in groups.items()
        }
        return {group: metrics for group, metrics in shown.items() if metrics}

    def close(self) -> None:
        """Publish the last values, wait for them a few seconds at most, and end."""
        self._closed.set()
        self._thread.join()
        self.report()
        self._writer.close()


class MetricsReporters:
    """The reporters of a container, from its first assignment to its end."""

    def __init__(self, take: Callable[[], Snapshot], *, since_ms: int) -> None:
        """`since_ms` is when the metrics began (`reset-time`)."""
        self._take = take
        self._since_ms = since_ms
        self._running: list[MetricsSnapshotReporter] | None = None

    def start(self, settings: Settings, job: JobId, container: str, home: Path) -> None:
        """Start those that the configuration names, the first time; a change of them restarts the container.

        Raises:
            ConfigError: a reporter's settings are wrong.
        """
        if self._running is not None:
            return
        header = Header(
            job.name, job.id, container, socket.gethostname(), __version__, reset_time_ms=self._since_ms
        )
        self._running = []
        for reporter in settings.metrics_reporters:
            target = log_stream(settings, reporter.stream, home)
            writer = BackgroundWriter(
                lambda target=target: open_sink(target, SystemClock()),  # type: ignore[misc]
                name=f"metrics reporter {reporter.name}",
            )
            made = MetricsSnapshotReporter(reporter, header, self._take, writer, SystemClock())
            made.start()
            self._running.append(made)

    def close(self) -> None:
        """Publish the last values and end."""
        running, self._running = self._running or [], []
        for reporter in running:
            reporter.close()
