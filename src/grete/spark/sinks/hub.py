"""An output on Azure Event Hubs: the sink for topics, with the partitions that the service itself would choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from grete.api import Batch
from grete.arrow import pa, pc
from grete.config.redact import is_secret_key
from grete.config.settings import Settings
from grete.model.ids import SystemStream
from grete.spark.sinks.kafka import HEADERS, OWN, KafkaSink
from grete.spark.sinks.rows import check_types, key_of, value_of
from grete.systems.commit_group import SegmentWrite
from grete.systems.eventhubs.hash import hub_partitioner
from grete.systems.partitioner import Partitioner


class HubSink:
    """Rows to one hub, at least once. A row goes to the partition of its column `partition`, else to its key's by
    `eventhubs.partition.method`; without a key as `sink` has it.
    """

    def __init__(self, sink: KafkaSink, stream: SystemStream, settings: Settings) -> None:
        hub_partitioner(settings, stream)  # refused before anything is written
        shown = {name: value for name, value in settings.raw.items() if not is_secret_key(name)}
        sends_keys = settings.hubs(stream.system).sends_keys
        self._sink = sink
        self._place = _Place(stream, sink.partitions, tuple(sorted(shown.items())), sends_keys)

    def write(self, rows: DataFrame, batch: Batch) -> Sequence[SegmentWrite]:
        """See Sink. The service has acknowledged the rows on return; when it fails, some may be there."""
        return self._sink.write(self._placed(rows), batch)

    def _placed(self, rows: DataFrame) -> DataFrame:
        types = dict(rows.dtypes)
        check_types(types, ("key", "value", "partition"))
        columns = [key_of(types).alias("key"), value_of(types, OWN).alias("value")]
        columns += [rows[name].cast(kind).alias(name) for name, kind in _MORE.items() if name in types]
        bare = rows.select(*columns)
        kept = [each for each in bare.schema if each.name != "partition"]
        return bare.mapInArrow(
            self._place, T.StructType([*kept, T.StructField("partition", T.IntegerType())])
        )

    def close(self) -> None:
        """See Sink."""
        self._sink.close()


_MORE: Mapping[str, str] = {"headers": HEADERS, "partition": "int"}


@dataclass(frozen=True, slots=True)
class _Place:
    """What a worker does with the batches of a task: `partition` by the key. `config` has no secrets."""

    stream: SystemStream
    partitions: int
    config: tuple[tuple[str, str], ...] = field(repr=False)
    sends_keys: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        choose = _partitioner(self.stream, self.config)
        for batch in batches:
            columns = {name: batch.column(name) for name in batch.schema.names}
            keys, given = columns["key"], columns.pop("partition", None)
            of_keys = pa.array(choose.of_each(keys, self.partitions))
            of_keys = pc.if_else(keys.is_null(), pa.scalar(None, pa.int32()), of_keys)
            if not self.sends_keys:
                columns["key"] = pa.nulls(len(keys), pa.binary())
            columns["partition"] = of_keys if given is None else pc.coalesce(given, of_keys)
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@cache
def _partitioner(stream: SystemStream, config: tuple[tuple[str, str], ...]) -> Partitioner:
    return hub_partitioner(Settings.of(dict(config)), stream)
