"""Settings with which topics of a job are created, from the configuration.

Replication factors, changelog settings and their precedence are Samza's (KafkaConfig); a changelog is compacted and
keeps its youngest changes from compaction for `min.compaction.lag.ms`, so that stores can be brought back to them.
"""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.key import COUNT
from grete.config.key_tables.streams import STORE_CHANGELOG_REPLICATION, SYSTEM_STREAM_DEFAULTS
from grete.config.settings import Settings
from grete.config.values import read_as
from grete.kafka.topics import TopicSettings
from grete.model.ids import SystemStream
from grete.model.streams import StreamSpec

_CHANGELOG_SEGMENT_BYTES = 536_870_912
_MESSAGE_BYTES = "1000012"
_DAY_MS = 24 * 3600 * 1000
_TOPIC_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "max.message.bytes")


class StreamSettings:
    """Settings of one Kafka system's streams in a job's configuration."""

    def __init__(self, config: Mapping[str, str], system: str) -> None:
        self._settings = Settings.of(config)
        self._system = system

    def of(self, spec: StreamSpec) -> TopicSettings:
        """How the stream is made.

        Raises:
            ConfigError: a replication factor that is no number.
        """
        store = self._store_behind(spec.stream)
        if store is not None:
            return self._changelog(store)
        stream = self._settings.stream(SystemStream(self._system, spec.stream))
        found = {name: stream.text(name) for name in _TOPIC_SETTINGS}
        config = {name: value for name, value in found.items() if value is not None}
        if spec.compacted:
            config["cleanup.policy"] = "compact"
        key, copies = stream.find("replication.factor") or (self._for_all("replication.factor"), "3")
        return TopicSettings(read_as(COUNT, key, copies), key, config)

    def may_be_deleted_by_age(self, stream: str) -> bool:
        """Whether the configuration has a changelog's records deleted by age."""
        store = self._store_behind(stream)
        return store is not None and "delete" in self._changelog(store).config["cleanup.policy"]

    def _store_behind(self, stream: str) -> str | None:
        settings, job = self._settings, self._settings.job.written_id
        names = (
            name for name in settings.store_names if settings.store(name).changelog_stream(job) == stream
        )
        return next(names, None)

    def _changelog(self, store: str) -> TopicSettings:
        settings = self._settings.store(store)
        copies = settings.changelog_property(
            "replication.factor",
            STORE_CHANGELOG_REPLICATION.named("default"),
            self._for_all("replication.factor"),
        )
        largest = settings.changelog_property("max.message.bytes", self._for_all("max.message.bytes"))
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(_CHANGELOG_SEGMENT_BYTES),
            "max.message.bytes": _MESSAGE_BYTES if largest is None else largest,
            "delete.retention.ms": settings.changelog_property("delete.retention.ms") or str(_DAY_MS),
            "min.compaction.lag.ms": str(settings.compaction_lag_ms),
            **settings.kafka_properties,
        }
        key = STORE_CHANGELOG_REPLICATION.named(store)
        return TopicSettings(read_as(COUNT, key, "3" if copies is None else copies), key, config)

    def _for_all(self, name: str) -> str:
        """The key of a property of all streams of the system."""
        return SYSTEM_STREAM_DEFAULTS.named(self._system, name)
