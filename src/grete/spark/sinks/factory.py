"""Opens the sinks of a pipeline's outputs by their names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from grete.api import DataFramePipeline
from grete.application.pipeline import has_own_write_batch
from grete.checkpoint.output_commits import LineageCommits, OutputCommits
from grete.clock import SystemClock
from grete.config.choices import PipelineDelivery
from grete.config.key_tables.outputs import OUTPUT_PATH
from grete.config.settings import Settings
from grete.config.settings.outputs import DELTA, JDBC, OutputSettings
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.container.start import Started
from grete.errors import ConfigError, StreamNotFound
from grete.model.ids import SystemStream
from grete.spark.jvm import java_session, jvm_of
from grete.spark.lineage.hadoop_files import HadoopLocation
from grete.spark.session.defaults import STAGE_ATTEMPTS
from grete.spark.session.kafka_options import StreamAddress, sink_settings
from grete.spark.sinks.base import Sink
from grete.spark.sinks.delta import DeltaSink
from grete.spark.sinks.files import FilesSink
from grete.spark.sinks.hub import HubSink
from grete.spark.sinks.jdbc import JdbcSink
from grete.spark.sinks.kafka import KafkaSink, OutputStamps, new_attempt, plain_records
from grete.spark.sinks.kafka_senders import sender_for
from grete.spark.sinks.kafka_transaction import KafkaTransactions, TransactionalSink, delivery
from grete.spark.sinks.listed_files import ListedFilesSink
from grete.spark.sinks.local import LocalSink
from grete.spark.sinks.own import OwnSink
from grete.systems.factory import open_system
from grete.systems.outputs import not_declared


class Sinks:
    """The sinks of one run of a pipeline, and the stamps of those that write to Kafka."""

    def __init__(
        self,
        spark: SparkSession,
        started: Started,
        lineage: str,
        outputs: Mapping[str, SystemStream | None],
        pipeline: DataFramePipeline,
    ) -> None:
        """Open them; `outputs` are those of `output_streams`. Transactions open in a thread, see `await_open`.

        Raises:
            ConfigError: an output cannot be written from here, or one of its settings is wrong.
            StreamNotFound: there is no such stream.
        """
        self._spark = spark
        self._started = started
        self._pipeline = pipeline
        self._settings = started.assignment.settings
        written = self._settings.task.written_as
        outputs = {name: None if stream is None else written(stream) for name, stream in outputs.items()}
        self._held = ExitStack()
        self.stamps: OutputStamps | None = None
        self.streams = [stream for stream in outputs.values() if stream is not None]
        """The streams that are written, by the names that they have there."""
        with_topics = {
            one.system
            for one in self.streams
            if self._settings.system(one.system).capabilities.spark_connector
        }
        self._deliveries = {system: self._delivery(system) for system in sorted(with_topics)}
        if with_topics:
            self.stamps = self._stamps(lineage)
        self.target = started.target
        """Where the batches are committed, with what their sinks give back."""
        self._transactions: KafkaTransactions | None = None
        if PipelineDelivery.TRANSACTIONS in self._deliveries.values():
            self._transactions = self._opened(
                [one.stream for one in self.streams if one.system == started.system_name]
            )
            self.target = replace(started.target, store=self._transactions)
        self.by_name: dict[str, Sink] = {}
        for name, stream in outputs.items():
            sink = self._other_sink(name) if stream is None else self._sink(stream)
            self._held.callback(sink.close)
            self.by_name[name] = sink
        if self._transactions is not None:
            self._transactions.begin_opening()

    def await_open(self) -> None:
        """Return when every sink is open; see `KafkaTransactions.await_open`.

        Raises:
            GreteError: one could not be opened.
        """
        if self._transactions is not None:
            self._transactions.await_open()

    def confirm(self) -> None:
        """Wait until what was committed can be read; see `KafkaTransactions.confirm`."""
        if self._transactions is not None:
            self._transactions.confirm()

    def query(self, frame: DataFrame) -> DataFrame:
        """The query to run for `frame`: with a single output to Kafka, it makes the records as well.

        Else each batch has to be analysed and planned once more for that.

        Raises:
            ConfigError: a column is not of its type.
        """
        only = next(iter(self.by_name.items())) if len(self.by_name) == 1 else None
        if only is None or not isinstance(only[1], TransactionalSink):
            return frame
        self.by_name[only[0]] = replace(only[1], gets_records=True)
        return plain_records(frame)

    def close(self) -> None:
        """Close them all."""
        self._held.close()

    def _sink(self, stream: SystemStream) -> Sink:
        system, partitions = self._settings.system(stream.system), self._partitions(stream)
        if system.capabilities.spark_connector:
            chosen = self._deliveries[stream.system]
            if chosen is PipelineDelivery.TRANSACTIONS and self._transactions is not None:
                return TransactionalSink(stream.stream, self._transactions)
            address = StreamAddress.of(self._settings, stream)
            options = sink_settings(self._settings, stream.system, address)
            stamps = self.stamps if chosen is PipelineDelivery.STAMPS else None
            sink = KafkaSink(address.topic, partitions, options, stamps)
            return (
                HubSink(sink, stream, self._settings) if system.capabilities.configured_by_streams else sink
            )
        if stream.system == self._started.system_name and system.capabilities.is_embedded:
            return LocalSink(stream, partitions, self._staging(stream), self._started.target.now_ms)
        raise ConfigError(
            f"the pipeline's checkpoints are in system {self._started.system_name!r} and its output is {stream}: of "
            f"systems without Kafka topics only that one can be written"
        )

    def _staging(self, stream: SystemStream) -> Path:
        """This incarnation's folder for the rows of a stream; what earlier ones have left is gone."""
        assignment = self._started.assignment
        folder, own = assignment.state_directory(self._started.home) / "staged", str(assignment.fence.epoch)
        for other in folder.iterdir() if folder.is_dir() else ():
            if other.name != own:
                shutil.rmtree(other, ignore_errors=True)
        return folder / own / stream.stream

    def _delivery(self, system: str) -> PipelineDelivery:
        return delivery(self._settings.system(system), self._started.system_name)

    def _opened(self, streams: Sequence[str]) -> KafkaTransactions:
        started, context = self._started, self._spark.sparkContext
        opened = KafkaTransactions(
            self._spark,
            started.system,
            started.target.fences,
            [*streams, started.target.checkpoint_log],
            sink_settings(self._settings, started.system_name),
            self._settings.task.batch_transaction_timeout_s,
            SystemClock(),
            sender_for(jvm_of(self._spark), context.master, context.getConf().get(STAGE_ATTEMPTS)),
        )
        self._held.callback(opened.close)
        return opened

    def _other_sink(self, name: str) -> Sink:
        settings, assignment = self._settings.outputs.get(name), self._started.assignment
        if settings is None:
            return OwnSink(self._pipeline, name)
        app = f"{assignment.job.key}/{assignment.container_id}/{name}"
        replaces = self._pipeline.output_mode == "complete"
        if settings.format == DELTA:
            table = f"{name}{self._settings.task.outputs_suffix or ''}"
            noted = assignment.state_directory(self._started.home) / "outputs" / table
            return DeltaSink(self._spark, settings, app, assignment.fence, noted, replaces=replaces)
        if settings.format == JDBC:
            return JdbcSink(self._spark, settings, app, assignment.fence, replaces=replaces)
        if replaces:
            raise ConfigError(
                f"outputs.{name}.format={settings.format}: files have a folder for each batch, so a pipeline with "
                f'output_mode "complete" cannot write them; use delta or jdbc, or output_mode "update"'
            )
        place = HadoopLocation.of(self._spark, settings.target_path, OUTPUT_PATH.named(name))
        files = ListedFilesSink if place.creates_if_absent() else FilesSink
        return files(self._spark, settings, re.sub(r"\W", "_", app), assignment.fence)

    def _partitions(self, stream: SystemStream) -> int:
        """How many the output has.

        Raises:
            ApplicationError: it is not there, and nobody makes it: no start would find it.
        """
        try:
            return self._counted(stream)
        except StreamNotFound as error:
            if stream in map(self._settings.task.written_as, self._settings.task.written_streams):
                raise  # the coordinator has made it
            raise not_declared(stream, error) from error

    def _counted(self, stream: SystemStream) -> int:
        started = self._started
        if stream.system == started.system_name:
            return started.system.partition_count(stream.stream)
        other = open_system(self._settings, stream.system, started.home, SystemClock())
        try:
            return other.partition_count(stream.stream)
        finally:
            other.close()

    def _stamps(self, lineage: str) -> OutputStamps:
        known, target = OutputCommits(), self._started.target
        known.read(self._started.system.checkpoint_log(target.checkpoint_log).read())
        commits = known.lineages.get(lineage, LineageCommits(lineage))
        return OutputStamps(new_attempt(self._started.assignment), commits)


def output_streams(
    names: Iterable[str], settings: Settings, pipeline: DataFramePipeline
) -> dict[str, SystemStream | None]:
    """The streams that a pipeline's outputs go to by their names; None for those that are configured or its own.

    Raises:
        ConfigError: an output is nothing of these.
    """
    has_own = has_own_write_batch(pipeline)
    systems = {*settings.system_names, EMBEDDED_SYSTEM}
    found: dict[str, SystemStream | None] = {}
    for name in names:
        system, dot, stream = name.partition(".")
        if dot and stream and system in systems:
            found[name] = SystemStream(system, stream)
        elif not dot and (name in settings.outputs or has_own):
            found[name] = None
        else:
            raise ConfigError(
                f"output {name!r} of the pipeline is no stream of a system that is configured, and nothing else "
                f"either: name it system.stream (with systems.SYSTEM.samza.factory set), say where it goes by "
                f"outputs.NAME.format, or define write_batch for a name without a dot"
            )
    return found


def check_format(spark: SparkSession, settings: OutputSettings) -> None:
    """Refuse a format that Spark does not have, before the first batch would fail by it, again and again.

    Raises:
        ConfigError: it has not.
    """
    jvm: Any = jvm_of(spark)
    sources = jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(settings.format, java_session(spark).sessionState().conf())
    except Py4JJavaError as error:
        raise ConfigError(
            f"outputs.{settings.name}.format={settings.format}: {error.java_exception.getMessage()} Spark has "
            f"parquet, orc, json, csv, text and jdbc by itself; any other needs its jar, named by spark.jars or "
            f"spark.jars.packages"
        ) from error
