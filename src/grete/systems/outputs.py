"""The streams that a job writes: made by its coordinator, which has all inputs; containers only look for them.

A partition count is for ever, and a container has its own inputs alone: two of them would disagree.

Outputs of the job's own system are in the transaction of their checkpoints. Those of another one are appended there
before this transaction is committed, so they may be there twice, and are never missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grete.clock import Clock
from grete.config.settings import Settings
from grete.config.settings.systems import ELSEWHERE
from grete.config.system_types import system_type
from grete.errors import ApplicationError, StreamNotFound
from grete.model.ids import SystemStream
from grete.model.streams import StreamSpec
from grete.systems.base import Message, System
from grete.systems.factory import open_system
from grete.systems.log_sink import LogSink, LogStream, open_sink

if TYPE_CHECKING:
    from grete.arrow import pa


class OutputSystems:
    """The system `name` of a job, and others that its tasks write to, each opened when it is first asked for."""

    def __init__(self, settings: Settings, name: str, own: System, home: Path, clock: Clock) -> None:
        self._settings = settings
        self._name = name
        self._own = own
        self._home = home
        self._clock = clock
        self._others: dict[str, System] = {}
        self._sinks: dict[str, LogSink] = {}

    def of(self, name: str) -> tuple[System, str]:
        """A stream's system and its name there, by what `SystemSettings.name_of` calls it."""
        system, sign, stream = name.partition(ELSEWHERE)
        return (self.named(system), stream) if sign else (self._own, name)

    def named(self, system: str) -> System:
        """A system by its name."""
        if system == self._name:
            return self._own
        if system not in self._others:
            self._others[system] = open_system(self._settings, system, self._home, self._clock)
        return self._others[system]

    def written(self, stream: SystemStream) -> tuple[System, str]:
        """As `of`, for a stream that the configuration names."""
        return self.of(self._settings.system(self._name).name_of(stream) or stream.stream)

    def append(self, outputs: Sequence[tuple[str, int, pa.RecordBatch]]) -> None:
        """Append records to streams of other systems, durable on return.

        Raises:
            StreamError: one was refused; others may be there.
        """
        from grete.systems.records import rows_of

        messages: dict[str, list[Message]] = {}
        for name, partition, records in outputs:
            messages.setdefault(name, []).extend(
                Message(key, value, time_ms, partition, headers)
                for _, key, value, time_ms, headers in rows_of(0, records)
            )
        for name, sent in messages.items():
            if name not in self._sinks:
                self._sinks[name] = self._sink(name)
            self._sinks[name].write(sent)

    def _sink(self, name: str) -> LogSink:
        """A way to a stream without transactions, where its system has one.

        On Kafka a transaction for each append took 8 ms of each commit, acknowledged records take 1; and a worker
        that is killed in a transaction keeps readers waiting until it times out.
        """
        system, stream = self.of(name)
        known_as = SystemStream(name.partition(ELSEWHERE)[0], stream)
        if system_type(self._settings.system(known_as.system).kind).log_sink is None:
            return _Appending(system, stream)
        partitions = system.partition_count(stream)
        return open_sink(LogStream(known_as, self._settings, self._home, partitions, -1), self._clock)

    def close(self) -> None:
        """Close those that were opened here."""
        while self._sinks:
            self._sinks.popitem()[1].close()
        while self._others:
            self._others.popitem()[1].close()


class _Appending:
    """A stream of a system whose appends are no transactions. See LogSink."""

    def __init__(self, system: System, stream: str) -> None:
        self._system = system
        self._stream = stream

    def write(self, records: Sequence[Message]) -> None:
        """See LogSink."""
        self._system.append(self._stream, records)

    def close(self) -> None:
        """See LogSink: the system is closed where it was opened."""


def is_elsewhere(name: str) -> bool:
    """Whether what `SystemSettings.name_of` calls so is of another system."""
    return ELSEWHERE in name


def written_together(settings: Settings, name: str) -> list[SystemStream]:
    """The declared outputs, and dead letters, that commit with the checkpoints of the system `name`."""
    system = settings.system(name)
    return [
        stream for stream in settings.task.written_streams if not is_elsewhere(system.name_of(stream) or "")
    ]


def create_outputs(
    settings: Settings, outputs: OutputSystems, partitions: Mapping[SystemStream, int]
) -> None:
    """Create the declared outputs that are not there.

    They get as many partitions as they say themselves, else as the largest of the job's inputs has.

    Raises:
        StreamError: the system cannot create one.
    """
    largest = max(partitions.values(), default=1)
    for stream in settings.task.written_streams:
        system, name = outputs.written(stream)
        try:
            system.partition_count(name)
        except StreamNotFound:
            system.create_stream(StreamSpec(name, settings.stream(stream).partitions or largest))


def not_declared(stream: SystemStream, error: StreamNotFound) -> ApplicationError:
    """Of an output that is not there and that no coordinator makes."""
    return ApplicationError(
        f"output {stream}: {error}; name it in task.outputs, and it is created when the job starts"
    )


def check_outputs(settings: Settings, outputs: OutputSystems) -> None:
    """Look for the declared outputs.

    Raises:
        StreamNotFound: one is not there.
    """
    for stream in settings.task.written_streams:
        system, name = outputs.written(stream)
        try:
            system.partition_count(name)
        except StreamNotFound as error:
            raise StreamNotFound(
                f"the output {stream} is not there any more: the job's coordinator makes outputs when it starts. Run "
                f"the job again, or create it: grete stream create {stream} --partitions N"
            ) from error
