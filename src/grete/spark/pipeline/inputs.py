"""The inputs of a DataFrame pipeline: one stream of Spark's for each, however often `build` uses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from grete.config.settings import Settings
from grete.container.start import Started
from grete.errors import ConfigError
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.spark import plans
from grete.spark.pipeline.columns_used import USED
from grete.spark.pipeline.kafka_source import KafkaSourceSpec
from grete.spark.pipeline.kafka_source import read_stream as read_kafka
from grete.spark.session.kafka_options import StreamAddress
from grete.tasks.read_plan import PARTITIONS_AT_MOST, SourceOptions

INPUT = "grete.input"
"""The option of a stream that says which input it is. Spark's connector to Kafka ignores what it does not know."""


def read_inputs(spark: SparkSession, started: Started, starting: Mapping[str, int]) -> dict[str, DataFrame]:
    """The container's inputs by `system.stream`, each from the next offsets in `starting`.

    A batch takes `task.max.records.per.batch` records at most, or what autosizing has decided, an equal part of each
    input.

    Raises:
        ConfigError: an input is to be read before others; no brokers, a reference to nothing.
    """
    settings = started.assignment.settings
    by_stream: dict[SystemStream, dict[SystemStreamPartition, int]] = {}
    for text, offset in starting.items():
        ssp = SystemStreamPartition.parse(text)
        by_stream.setdefault(ssp.system_stream, {})[ssp] = offset
    _refuse_bootstrap(stream for stream in by_stream if settings.stream(stream).is_bootstrap)
    at_most = max(1, settings.autosizing.batch_records // max(1, len(by_stream)))
    return {
        str(stream): _read(spark, started, settings, stream, by_stream[stream], at_most)
        for stream in sorted(by_stream)
    }


def renamed_topics(settings: Settings) -> dict[str, str]:
    """The topics of inputs, by `system.stream`, that have other names than their streams.

    Raises:
        ConfigError: see `StreamAddress.of`.
    """
    found = {stream: StreamAddress.of(settings, stream).topic for stream in settings.task.all_inputs}
    return {str(stream): topic for stream, topic in found.items() if topic != stream.stream}


def _read(
    spark: SparkSession,
    started: Started,
    settings: Settings,
    stream: SystemStream,
    starting: Mapping[SystemStreamPartition, int],
    at_most: int,
) -> DataFrame:
    system, marked = settings.system(stream.system), {INPUT: str(stream)}
    if system.capabilities.spark_connector:
        address = StreamAddress.of(settings, stream) if system.capabilities.configured_by_streams else None
        kafka = KafkaSourceSpec(stream.system, starting, at_most, system.pipeline_headers, marked, address)
        return read_kafka(spark, settings, kafka)
    from grete.spark.pipeline.planned_source import (
        read_stream as read_planned,
    )  # Spark 4.0 and 4.1 lack what it stands on

    spec = SourceOptions(
        system=stream.system,
        config=system.own_keys,
        home=str(started.home),
        ssps=tuple(map(str, starting)),
        starting_offsets={str(ssp): offset for ssp, offset in starting.items()},
        tasks=None,
        max_records=at_most,
        max_bytes=settings.task.max_bytes_per_batch,
        partitions_at_most=settings.spark.cores or PARTITIONS_AT_MOST,
    )
    return read_planned(spark, spec, {**marked, USED: str(used_file(started))})


def used_file(started: Started) -> Path:
    """Where a container says to its embedded inputs which of their columns are used: see `columns_used`."""
    return started.assignment.state_directory(started.home) / "columns.json"


def _refuse_bootstrap(streams: Iterable[SystemStream]) -> None:
    if named := ", ".join(sorted(map(str, streams))):
        raise ConfigError(
            f"{named}: samza.bootstrap=true is not possible for a DataFrame pipeline, since Spark reads all inputs "
            f"of a batch at once; use a StreamTask, or join with a table"
        )


def read_once(outputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The outputs, rebuilt so that an input that is used several times is one stream of Spark's.

    Else each use would be a stream with offsets of its own: batches in which the two sides of a join end at different
    records, and no one offset of an input to write into a checkpoint.
    """
    first: dict[str, Any] = {}

    def the_first(plan: Any) -> Any | None:
        stream = plans.option(plan, INPUT)
        if stream is None:
            return None
        known = first.setdefault(stream, plan)
        return None if known.equals(plan) else plans.renamed(known, plan)

    def with_one_stream_each(frame: DataFrame) -> DataFrame:
        before = plans.analysed(frame)
        after = plans.replaced(before, the_first)
        return frame if after is before else plans.frame_of(after, frame.sparkSession)

    return {name: with_one_stream_each(frame) for name, frame in outputs.items()}


def sources_of(frame: DataFrame) -> tuple[str, ...]:
    """The inputs in the order of Spark's log of offsets, `system.stream`; empty for a source that is not grete's."""
    return tuple(plans.option(plan, INPUT) or "" for plan in plans.streams(plans.analysed(frame)))


def used_in(frames: Iterable[DataFrame]) -> set[str]:
    """The inputs that are read, `system.stream`."""
    found = (plans.option(one, INPUT) for frame in frames for one in plans.streams(plans.analysed(frame)))
    return {stream for stream in found if stream}


def check_all_used(inputs: Iterable[str], used: Iterable[str], application: str) -> None:
    """Whether every input is read.

    Raises:
        ConfigError: naming those that are not: their checkpoints would stand still, their lag would grow.
    """
    if unused := ", ".join(sorted(set(inputs) - set(used))):
        raise ConfigError(
            f"app.class: {application}.build does not use {unused}: take it out of task.inputs, or use it"
        )
