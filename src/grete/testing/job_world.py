"""The world around a job, as a test decides it: which messages arrive, when the job sees them, what time it is."""

from __future__ import annotations

from typing import Any

from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.model.streams import Headers
from grete.serdes import stream_serdes
from grete.systems.local.system import LocalSystem, Message
from grete.testing.clock import ManualClock
from grete.testing.job_container import BlockedEnds
from grete.testing.job_results import JobResults, stream_name


class JobWorld(JobResults):
    """The job's streams, its clock, and what is held back from it."""

    def __init__(self, settings: Settings, system: LocalSystem, clock: ManualClock) -> None:
        super().__init__(settings, system, clock)
        self.clock = clock
        self._ends = BlockedEnds(system)

    def send(
        self,
        stream: str,
        message: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Append a message to `system.stream`, through its serdes, as any program would."""
        serdes = stream_serdes(SystemStream.parse(stream), self._settings)
        self.send_bytes(
            stream,
            serdes.message.to_bytes(message),
            key=serdes.key.to_bytes(key),
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
        )

    def send_bytes(
        self,
        stream: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Append raw bytes, such as a message that its serde cannot read."""
        time_ms = self.clock.wall_ms() if timestamp_ms is None else timestamp_ms
        self._system.append(stream_name(stream), [Message(key, value, time_ms, partition, headers)])

    def block(self, stream: str, partition: int | None = None) -> None:
        """Hold back from the job what arrives in a stream (or one partition) from now on."""
        self._ends.block(stream_name(stream), partition)

    def unblock(self, stream: str, partition: int | None = None) -> None:
        """Let the job see what was held back."""
        self._ends.unblock(stream_name(stream), partition)

    def add_partitions(self, stream: str, count: int) -> None:
        """Let a stream have `count` partitions; the job sees them when it is restarted.

        Raises:
            StreamError: it has more already.
        """
        self._system.add_partitions(stream_name(stream), count)

    def advance(self, seconds_s: float) -> None:
        """Let time pass; the next batch calls `window` when `task.window.ms` has passed."""
        self.clock.advance(seconds_s)
