"""A DataFramePipeline on Kafka: its inputs through Spark's connector, its batches committed by the driver."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from grete.checkpoint.output_commits import LineageCommits, OutputCommits
from grete.config.settings import Settings
from grete.container.assignment import Assignment
from grete.container.start import Started
from grete.errors import ConfigError
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.spark.kafka_batch import KafkaOutput, KafkaPipelineBatch, new_attempt
from grete.spark.kafka_options import sink_settings
from grete.spark.kafka_source import KafkaSourceSpec, read_stream, refuse_bootstrap
from grete.spark.kafka_source import explain_data_loss as explain_data_loss
from grete.spark.lineage import LineageInfo


def kafka_system_of(settings: Settings, system: str) -> str | None:
    """The system, when a pipeline reads it through Spark's connector to Kafka."""
    is_read_so = settings.job.is_pipeline and settings.system(system).capabilities.kafka_topics
    return system if is_read_so else None


def read(spark: SparkSession, assignment: Assignment, lineage: LineageInfo) -> DataFrame:
    """The container's inputs from where the lineage starts.

    Raises:
        ConfigError: see `kafka_source.read_stream`; or an input is to be read before the others.
    """
    settings = Settings.of(assignment.config)
    streams = {ssp.system_stream for ssp in assignment.ssps}
    refuse_bootstrap({str(stream) for stream in streams if settings.stream(stream).is_bootstrap})
    starting = {SystemStreamPartition.parse(ssp): offset for ssp, offset in lineage.starting_offsets.items()}
    headers = settings.system(lineage.system).pipeline_headers
    spec = KafkaSourceSpec(lineage.system, starting, settings.task.max_records_per_batch, headers)
    return read_stream(spark, assignment.config, spec)


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
            Settings.of(assignment.config).system(output.system).pipeline_stamps,
        ),
        started.next_offsets,
    )
