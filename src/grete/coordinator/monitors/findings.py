"""Findings of monitors, as values; the coordinator decides what to do about them."""

from __future__ import annotations

from dataclasses import dataclass

from grete.checkpoint.lag import JobLag
from grete.model.ids import ContainerId, SystemStream


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A stream's number of partitions in the job model and in its system."""

    stream: SystemStream
    before: int
    now: int


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Input streams do not have as many partitions as the job model says.

    Found once for every new set of counts. `grown` needs a new job model; Samza restarts a stateless job then and
    fails a stateful one. `shrunk` Samza only logs: nothing can be done but to restore the stream.
    """

    grown: tuple[PartitionChange, ...]
    shrunk: tuple[PartitionChange, ...]


@dataclass(frozen=True, slots=True)
class StreamsChanged:
    """Streams exist that an input regex matches and that are no inputs yet, sorted. Found once for every new set."""

    found: tuple[SystemStream, ...]


@dataclass(frozen=True, slots=True)
class SilentContainer:
    """This incarnation of a container has not sent a heartbeat for `silent_s`. Found once in a silence."""

    container: ContainerId
    launch: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class QueryStuck:
    """A container sends heartbeats and has lag, but no batch has ended for `stuck_s`. Found once in a standstill."""

    container: ContainerId
    launch: int
    stuck_s: float
    batch_id: int
    lag: int


@dataclass(frozen=True, slots=True)
class LagMeasured:
    """The lag of the job as it was measured now."""

    lag: JobLag


Finding = PartitionsChanged | StreamsChanged | SilentContainer | QueryStuck | LagMeasured
