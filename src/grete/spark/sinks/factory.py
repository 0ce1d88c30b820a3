"""Opens the sinks of a pipeline's outputs by their names."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from grete.checkpoint.output_commits import LineageCommits, OutputCommits
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.container.start import Started
from grete.errors import ConfigError, WireError
from grete.model.ids import SystemStream
from grete.spark.kafka_options import sink_settings
from grete.spark.sinks.base import Sink
from grete.spark.sinks.kafka import KafkaSink, OutputStamps, new_attempt
from grete.spark.sinks.local import LocalSink
from grete.systems.factory import open_system


class Sinks:
    """The sinks of one run of a pipeline, and the stamps of those that write to Kafka."""

    def __init__(self, started: Started, lineage: str, outputs: Iterable[str]) -> None:
        """Open them.

        Raises:
            ConfigError: an output is of a system that is not configured, or cannot be written from here.
            StreamNotFound: there is no such stream.
        """
        self._started = started
        self._settings = Settings.of(started.assignment.config)
        self._held = ExitStack()
        self.stamps: OutputStamps | None = None
        streams = {name: _stream(name, self._settings) for name in outputs}
        if any(self._settings.system(one.system).capabilities.kafka_topics for one in streams.values()):
            self.stamps = self._stamps(lineage)
        self.by_name: dict[str, Sink] = {}
        for name, stream in streams.items():
            sink = self._sink(stream)
            self._held.callback(sink.close)
            self.by_name[name] = sink

    def close(self) -> None:
        """Close them all."""
        self._held.close()

    def _sink(self, stream: SystemStream) -> Sink:
        system, partitions = self._settings.system(stream.system), self._partitions(stream)
        if system.capabilities.kafka_topics:
            options = sink_settings(self._started.assignment.config, stream.system)
            return KafkaSink(
                stream.stream, partitions, options, self.stamps if system.pipeline_stamps else None
            )
        if stream.system == self._started.system_name and system.capabilities.is_embedded:
            return LocalSink(stream, partitions, self._started.target.now_ms)
        raise ConfigError(
            f"the pipeline's checkpoints are in system {self._started.system_name!r} and its output is {stream}: of "
            f"systems without Kafka topics only that one can be written"
        )

    def _partitions(self, stream: SystemStream) -> int:
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


def _stream(name: str, settings: Settings) -> SystemStream:
    try:
        stream = SystemStream.parse(name)
    except WireError:
        stream = None
    if stream is None or stream.system not in {*settings.system_names, EMBEDDED_SYSTEM}:
        raise ConfigError(
            f"output {name!r} of the pipeline is no stream of a system that is configured: name it system.stream, "
            f"with systems.SYSTEM.samza.factory set"
        )
    return stream
