"""Outputs that an application's process handed over, put into the partitions of their streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from grete.api import Serde
from grete.application.serdes import BUILT_IN
from grete.arrow import np, pa
from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.systems.columns import integers
from grete.systems.placement import Placement
from grete.systems.records import records
from grete.tasks.collector import Collector, Placed, StreamFacts, opened_output
from grete.tasks.isolated.columns import as_column, as_numbers

BLOBS = 8
"""Of one piece: three of keys, three of values, times, partitions that the application chose."""


class PlacedOutput:
    """One output stream of one task."""

    def __init__(
        self, name: str, partitions: int, largest: int, placement_of: Callable[[Serde], Placement]
    ) -> None:
        """`name` is what the container's system calls the stream; `placement_of` gives that by a serde of keys."""
        self.name = name
        self.partitions = partitions
        self.largest = largest
        self._placement_of = placement_of
        self._placement: Placement | None = None
        self._placed = Placed()

    def add(self, blobs: Sequence[bytes], headers: Any, key_base: str) -> None:
        """Take a piece of records; `key_base` names the serde that the one of their keys derives from."""
        if self._placement is None:
            self._placement = self._placement_of(BUILT_IN[key_base]())
        times = integers(as_numbers(blobs[6], np.int64))
        batch = records(as_column(blobs[:3]), as_column(blobs[3:6]), times, headers)
        self._placed.add(self._placement.split(batch, as_numbers(blobs[7], np.int32) if blobs[7] else None))

    def take(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Everything gathered; the output is empty afterwards."""
        for partition, batch in self._placed.take():
            yield self.name, partition, batch


class PlacedOutputs(Collector):
    """All outputs of one task; in the place of the collector of a task that runs here."""

    def __init__(self, settings: Settings, default_system: str, task_index: int, facts: StreamFacts) -> None:
        super().__init__(settings, default_system, task_index, facts)
        self._placed: dict[str, PlacedOutput] = {}

    def output(self, stream: str) -> PlacedOutput:
        """The output, opened when it is new.

        Raises:
            StreamNotFound, LogError: see `opened_output`.
        """
        found = self._placed.get(stream)
        if found is None:
            found = self._placed[stream] = opened_output(
                stream, self._settings, self._system, self._open_placed
            )
        return found

    def _open_placed(self, stream: SystemStream, name: str) -> PlacedOutput:
        facts, index = self._facts, self._task_index
        sizes = facts.partitions(name), facts.largest(name)
        return PlacedOutput(name, *sizes, lambda serde: facts.placement(stream, name, serde, index))

    def settle(self) -> None:
        """Nothing: everything comes as columns."""

    def add(self, stream: str, key_base: str, headers: Sequence[Any], blobs: Sequence[bytes]) -> None:
        """Take a piece of one stream's records."""
        of_rows = _by_row(headers, len(blobs[6]) // 8) if headers else None
        self.output(stream).add(blobs, of_rows, key_base)

    def take(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Every (stream, partition, records) gathered; empty afterwards."""
        for output in self._placed.values():
            yield from output.take()


def _by_row(headers: Sequence[Any], rows: int) -> list[Any]:
    found: list[Any] = [None] * rows
    for row, given in headers:
        found[row] = [(name, None if value is None else bytes.fromhex(value)) for name, value in given]
    return found
