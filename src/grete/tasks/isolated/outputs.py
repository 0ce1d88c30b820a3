"""Outputs that an application's process handed over, put into the partitions of their streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from grete.api import Serde
from grete.application.serdes import BUILT_IN
from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.systems.partitioner import Partitioner
from grete.systems.records import join, records
from grete.tasks.collector import Collector, StreamFacts, opened_output
from grete.tasks.isolated.columns import as_column, as_numbers

_REMEMBERED = 200_000
BLOBS = 8
"""Of one piece: three of keys, three of values, times, partitions that the application chose."""


class _Places(dict[bytes | None, int]):
    """Partitions by key; remembered, because hashing in Python costs more than the rest."""

    def __init__(self, partitioner: Partitioner, partitions: int, own: int) -> None:
        """`own` is where records without a key go."""
        super().__init__({None: own})
        self._partitioner = partitioner
        self._partitions = partitions
        self._own = own

    def __missing__(self, key: bytes | None) -> int:
        assert key is not None, "it is always known"
        found = self[key] = self._partitioner(key, self._partitions)
        return found

    def make_room(self) -> None:
        """Forget everything when it has become much."""
        if len(self) > _REMEMBERED:
            self.clear()
            self[None] = self._own


class PlacedOutput:
    """One output stream of one task."""

    def __init__(
        self,
        name: str,
        partitions: int,
        largest: int,
        partitioner_of: Callable[[Serde], Partitioner],
        task_index: int,
    ) -> None:
        """`name` is what the container's system calls the stream; `partitioner_of` gives that of a serde of keys."""
        self.name = name
        self.partitions = partitions
        self.largest = largest
        self._own = task_index % partitions
        self._partitioner_of = partitioner_of
        self._place_of: _Places | None = None

    def place(
        self, blobs: Sequence[bytes], headers: Any, key_base: str
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Each partition's records, in order; `key_base` names the serde that the one of their keys derives from."""
        keys = as_column(blobs[:3])
        batch = records(keys, as_column(blobs[3:6]), pa.array(as_numbers(blobs[6], np.int64)), headers)
        chosen = as_numbers(blobs[7], np.int32) if blobs[7] else None
        if chosen is None and (self.partitions == 1 or keys.null_count == len(keys)):
            yield self._own if self.partitions > 1 else 0, batch
            return
        if self._place_of is None:
            self._place_of = _Places(self._partitioner_of(BUILT_IN[key_base]()), self.partitions, self._own)
        self._place_of.make_room()
        places = np.fromiter(map(self._place_of.__getitem__, keys.to_pylist()), np.int32, len(keys))
        if chosen is not None:
            places = np.where(chosen >= 0, chosen, places)
        for partition in np.unique(places):
            yield int(partition), batch.take(pa.array(np.flatnonzero(places == partition)))


class PlacedOutputs(Collector):
    """All outputs of one task; in the place of the collector of a task that runs here."""

    def __init__(self, settings: Settings, default_system: str, task_index: int, facts: StreamFacts) -> None:
        super().__init__(settings, default_system, task_index, facts)
        self._placed: dict[str, PlacedOutput] = {}
        self._gathered: dict[tuple[str, int], list[pa.RecordBatch]] = {}

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
        facts = self._facts
        sizes = facts.partitions(name), facts.largest(name)
        return PlacedOutput(name, *sizes, partial(facts.partitioner, stream), self._task_index)

    def settle(self) -> None:
        """Nothing: everything comes as columns."""

    def add(self, stream: str, key_base: str, headers: Sequence[Any], blobs: Sequence[bytes]) -> None:
        """Take a piece of one stream's records."""
        output = self.output(stream)
        of_rows = _by_row(headers, len(blobs[6]) // 8) if headers else None
        for partition, batch in output.place(blobs, of_rows, key_base):
            self._gathered.setdefault((output.name, partition), []).append(batch)

    def take(self) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Every (stream, partition, records) gathered; empty afterwards."""
        gathered, self._gathered = self._gathered, {}
        for (name, partition), batches in sorted(gathered.items(), key=lambda one: one[0]):
            yield name, partition, join(batches)


def _by_row(headers: Sequence[Any], rows: int) -> list[Any]:
    found: list[Any] = [None] * rows
    for row, given in headers:
        found[row] = [(name, None if value is None else bytes.fromhex(value)) for name, value in given]
    return found
