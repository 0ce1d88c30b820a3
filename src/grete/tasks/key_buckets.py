"""Which records of a partition are whose in an elastic job: a bucket is the keys of one of the partition's tasks.

Samza's `IncomingMessageEnvelope.getSystemStreamPartition(elasticityFactor)`: the absolute value of the key's Java
hash, else of the offset's text where there is no key, modulo the factor. Of keys whose hash Java takes from an
address (bytes) or from classes (documents) it is Kafka's, which every process knows. The one hash that has no
absolute value is in bucket 0; in Samza its records are in no task, unless the factor is a power of two.
"""

from __future__ import annotations

from collections.abc import Sequence

from grete.application.serdes import BUILT_IN, BytesSerde, StringSerde
from grete.arrow import np, npt, pa
from grete.config.settings import Settings
from grete.model.ids import SystemStreamPartition
from grete.systems.columns import integers
from grete.systems.partitioner import Partitioner, samza_partition_of

_KEY, _OFFSET = 0, 3
"""Columns of `systems.records.SPARSE_SCHEMA`."""
_OF_OFFSETS = samza_partition_of(StringSerde())


class KeyBuckets:
    """Gives each task of a partition its records: of what is broadcast all."""

    @classmethod
    def of(cls, settings: Settings) -> KeyBuckets | None:
        """None for a job that is not elastic."""
        factor = settings.job.elasticity_factor
        return None if factor == 1 else cls(settings, factor)

    def __init__(self, settings: Settings, factor: int) -> None:
        """`factor` may be that of tasks which the settings do not have any more."""
        self._settings = settings
        self._factor = factor
        self._shared = frozenset(settings.task.broadcast_inputs)
        self._partitioners: dict[SystemStreamPartition, Partitioner] = {}

    def split(
        self, ssp: SystemStreamPartition, rows: pa.RecordBatch, buckets: Sequence[int]
    ) -> list[pa.RecordBatch]:
        """The rows of each bucket, in their order."""
        if ssp in self._shared:
            return [rows] * len(buckets)
        places = self._places(ssp, rows)
        return [rows.take(integers(np.flatnonzero(places == bucket))) for bucket in buckets]

    def of_keys(self, ssp: SystemStreamPartition, keys: pa.Array) -> npt.NDArray[np.int32]:
        """The bucket of each key of a binary column without nulls."""
        return self._partitioner(ssp).of_each(keys, self._factor)

    def _places(self, ssp: SystemStreamPartition, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        keys = rows.column(_KEY)
        places = self.of_keys(ssp, keys)
        if keys.null_count:
            offsets = rows.column(_OFFSET).cast(pa.string()).cast(pa.binary())
            by_offset = _OF_OFFSETS.of_each(offsets, self._factor)
            places = np.where(keys.is_null().to_numpy(zero_copy_only=False), by_offset, places)
        return places

    def _partitioner(self, ssp: SystemStreamPartition) -> Partitioner:
        if ssp not in self._partitioners:
            serde = BUILT_IN.get(key_serde_of(ssp, self._settings), BytesSerde)()
            self._partitioners[ssp] = samza_partition_of(serde)
        return self._partitioners[ssp]


def key_serde_of(ssp: SystemStreamPartition, settings: Settings) -> str:
    """What implements the serde of a stream's keys; the application's own is in its process."""
    said = settings.stream(ssp.system_stream).key_serde
    return "bytes" if said is None else settings.serde(said[1]).implementation
