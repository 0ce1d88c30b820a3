"""Records of one stream, put into its partitions by their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from grete.arrow import np, pa
from grete.systems.columns import integers
from grete.systems.partitioner import Partitioner

if TYPE_CHECKING:
    from grete.systems.partitioner import Places

_KEY = 0
_SORTED_FAST = 1 << 16
"""So many partitions are numbers of 16 bits, which numpy sorts in one pass."""


class Placement:
    """Where the records of one output go: the partition that was chosen, else the key's, else `without_key`."""

    def __init__(self, partitions: int, partitioner: Partitioner, without_key: int) -> None:
        self.partitions = partitions
        self._partitioner = partitioner
        self._without_key = without_key

    def split(
        self, batch: pa.RecordBatch, chosen: Places | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Each partition that gets some, with its records in their order; keys are the first column.

        `chosen` has -1 for the rows that go by their keys.
        """
        if not batch.num_rows:
            return
        if self.partitions == 1:
            yield 0, batch
            return
        places = self._places(batch.column(_KEY), chosen)
        kind = np.uint16 if self.partitions <= _SORTED_FAST else np.int32
        in_order = batch.take(integers(np.argsort(places.astype(kind), kind="stable")))
        counts, start = np.bincount(places), 0
        for partition in np.flatnonzero(counts).tolist():
            yield partition, in_order.slice(start, counts[partition])
            start += counts[partition]

    def _places(self, keys: pa.Array, chosen: Places | None) -> Places:
        if keys.null_count == len(keys):
            places = np.full(len(keys), self._without_key, np.int32)
        else:
            places = self._partitioner.of_each(keys, self.partitions)
            if keys.null_count:
                places[keys.is_null().to_numpy(zero_copy_only=False)] = self._without_key
        return places if chosen is None else np.where(chosen >= 0, chosen, places)
