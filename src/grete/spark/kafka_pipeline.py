"""A DataFramePipeline on Kafka: its inputs through Spark's connector, its batches committed by the driver."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from grete.checkpoint.output_commits import LineageCommits, OutputCommits
from grete.config.key_tables import streams
from grete.config.settings import Settings
from grete.config.settings.streams import StreamSettings
from grete.container.assignment import Assignment
from grete.container.specs import max_records
from grete.container.start import Started
from grete.errors import ConfigError
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.spark.kafka_batch import KafkaOutput, KafkaPipelineBatch, new_attempt
from grete.spark.kafka_options import sink_settings
from grete.spark.kafka_source import KafkaSourceSpec, read_stream, refuse_bootstrap
from grete.spark.kafka_source import explain_data_loss as explain_data_loss
from grete.spark.lineage import LineageInfo


def kafka_system_of(config: Mapping[str, str], system: str) -> str | None:
    """The system, when a pipeline of this configuration reads it through Spark's connector to Kafka."""
    return system if "app.class" in config and _is_topics(config, system) else None


def _is_topics(config: Mapping[str, str], system: str) -> bool:
    return Settings.of(config).system(system).capabilities.kafka_topics


def read(spark: SparkSession, assignment: Assignment, lineage: LineageInfo) -> DataFrame:
    """The container's inputs from where the lineage starts.

    Raises:
        ConfigError: see `kafka_source.read_stream`; or an input is to be read before the others.
    """
    config = assignment.config
    refuse_bootstrap(
        {
            str(ssp.system_stream)
            for ssp in assignment.ssps
            if StreamSettings(config, ssp.system_stream).is_bootstrap
        }
    )
    starting = {SystemStreamPartition.parse(ssp): offset for ssp, offset in lineage.starting_offsets.items()}
    headers = config.get(streams.PIPELINE_HEADERS.named(lineage.system), "false").lower() == "true"
    spec = KafkaSourceSpec(lineage.system, starting, max_records(config), headers)
    return read_stream(spark, config, spec)


def make_batch_writer(started: Started, lineage: LineageInfo, output: SystemStream) -> KafkaPipelineBatch:
    """The writer that commits this lineage's batches.

    Raises:
        ConfigError: the output is of another system than the inputs.
        StreamNotFound: there is no such topic.
    """
    if output.system != lineage.system:
        raise ConfigError(
            f"the pipeline reads from system {lineage.system!r} and writes to {output}: its checkpoints are in the "
            "system of its inputs, and so must its output be"
        )
    assignment, system, target = started.assignment, started.system, started.target
    known = OutputCommits()
    known.read(system.checkpoint_log(target.checkpoint_log).read())
    return KafkaPipelineBatch(
        target,
        new_attempt(assignment),
        known.lineages.get(lineage.id, LineageCommits(lineage.id)),
        {task.name: task.ssps for task in assignment.tasks},
        KafkaOutput(
            output,
            system.partition_count(output.stream),
            sink_settings(assignment.config, output.system),
            assignment.config.get(streams.PIPELINE_STAMPS.named(output.system), "true").lower() == "true",
        ),
        started.next_offsets,
    )
