"""A streaming DataFrame over exactly a container's SSPs of a Kafka system, by Spark's own connector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from grete.checkpoint.offset_manager import check_in_range
from grete.config.settings import Settings
from grete.errors import JobError
from grete.model.ids import SystemStreamPartition
from grete.spark.session.kafka_options import StreamAddress, source_settings
from grete.systems.admin import SystemAdmin

_WAY_OUT = (
    "To go on without what is lost: grete checkpoint rewind --ssp {ssp} --to oldest --execute (with --state discard "
    "when the pipeline keeps state)"
)
_DATA_LOSS = ("KAFKA_DATA_LOSS", "OffsetOutOfRangeException", "some data may have been missed")


@dataclass(frozen=True, slots=True)
class KafkaSourceSpec:
    """The input: next offsets by SSP, all of one system, at most `max_records` offsets a batch.

    `also` stays among the options of the stream; the connector passes over what it does not know.
    """

    system: str
    starting_offsets: Mapping[SystemStreamPartition, int]
    max_records: int
    with_headers: bool = False
    also: Mapping[str, str] = field(default_factory=dict)
    address: StreamAddress | None = None
    """Of the only stream, where it is no topic of its own name."""

    @property
    def topics(self) -> dict[SystemStreamPartition, int]:
        """The next offsets by the topics' own names."""
        if self.address is None:
            return dict(self.starting_offsets)
        topic = self.address.topic
        return {replace(ssp, stream=topic): offset for ssp, offset in self.starting_offsets.items()}


def read_stream(spark: SparkSession, settings: Settings, spec: KafkaSourceSpec) -> DataFrame:
    """The stream, with the columns that a pipeline's inputs have on every system.

    Its query fails when an offset that it is to read is gone. `headers` is there when asked for.

    Raises:
        ConfigError: no brokers, or a reference to nothing.
    """
    reader = spark.readStream.format("kafka").options(
        **source_settings(settings, spec.system, spec.address),
        **spec.also,
        assign=_by_topic({ssp: None for ssp in spec.topics}),
        startingOffsets=_by_topic(spec.topics),
        maxOffsetsPerTrigger=str(spec.max_records),
        failOnDataLoss="true",
        includeHeaders=str(spec.with_headers).lower(),
    )
    stream = F.concat(F.lit(f"{spec.system}."), F.col("topic"))
    if spec.address is not None:
        [name] = {str(ssp.system_stream) for ssp in spec.starting_offsets}
        stream = F.lit(name)
    names = ["partition", "offset", "key", "value", "timestamp", *(["headers"] if spec.with_headers else [])]
    return reader.load().select(stream.alias("stream"), *names)


def _by_topic(offsets: Mapping[SystemStreamPartition, int | None]) -> str:
    """As the connector's options want it: lists of partitions, or maps from partition to offset."""
    topics: dict[str, dict[str, int | None]] = {}
    for ssp, offset in sorted(offsets.items()):
        topics.setdefault(ssp.stream, {})[str(ssp.partition)] = offset
    if all(offset is None for offset in offsets.values()):
        return json.dumps({topic: [int(each) for each in found] for topic, found in topics.items()})
    return json.dumps(topics)


def explain_data_loss(
    error: JobError, positions: Mapping[str, int], admins: Mapping[str, SystemAdmin]
) -> None:
    """When the query failed because offsets are gone, say which: by what the brokers have now.

    Raises:
        OffsetOutOfRange: naming the range that is lost, and the way out.
    """
    if not any(words in str(error) for words in _DATA_LOSS):
        return
    for text, offset in sorted(positions.items()):
        ssp = SystemStreamPartition.parse(text)
        admin = admins[ssp.system]
        offsets = admin.offsets(ssp.stream).get(ssp.partition)
        if offsets is not None:
            what = f"{ssp} was to be read from offset {offset}"
            check_in_range(str(offset), offsets, admin, what, _WAY_OUT.format(ssp=ssp))
