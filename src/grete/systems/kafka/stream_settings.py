"""Settings with which topics of a job are created, from the configuration.

Replication factors, changelog settings and their precedence are Samza's (KafkaConfig); a changelog is compacted and
keeps its youngest changes from compaction for `min.compaction.lag.ms`, so that stores can be brought back to them.
That of a store whose entries expire deletes by age as well. Samza's does that alone, because of a fault of brokers
before 1.1 (KAFKA-6568): a restore reads all changes there, however often a key was put.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from grete.config.key import COUNT
from grete.config.key_tables.streams import STORE_CHANGELOG_REPLICATION, STORE_TTL, SYSTEM_STREAM_DEFAULTS
from grete.config.settings import Settings
from grete.config.values import read_as
from grete.kafka.topics import TopicSettings
from grete.model.ids import SystemStream
from grete.model.streams import StreamSpec

_CHANGELOG_SEGMENT_BYTES = 536_870_912
_MESSAGE_BYTES = "1000012"
_DAY_MS = 24 * 3600 * 1000
_SEGMENT_MS = (600_000, 7 * _DAY_MS)
"""The age at which a segment is closed, at least and at most (Kafka's default): only a closed one goes by its age."""
_TOPIC_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "max.message.bytes")


class TopicProblem(NamedTuple):
    """What is wrong with a topic, and the way out."""

    says: str
    way_out: str


class KafkaStreamSettings:
    """Settings of one Kafka system's streams in a job's configuration."""

    def __init__(self, settings: Settings, system: str) -> None:
        self._settings = settings
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

    def changelog_problem(self, stream: str, topic: Mapping[str, str]) -> TopicProblem | None:
        """What is wrong with the settings of a changelog's topic, None where they do.

        What the configuration asks for under `stores.NAME.changelog.kafka.*` is as it is wanted.
        """
        store, policy = self._store_behind(stream), _words(topic.get("cleanup.policy", ""))
        ttl_ms = None if store is None else self._settings.store(store).ttl_ms
        own = {} if store is None else self._settings.store(store).kafka_properties
        if store is not None and ttl_ms is not None:
            return _expiry_problem(stream, store, topic, own, ttl_ms)
        if policy == {"compact"} or "delete" in _words(own.get("cleanup.policy", "")):
            return None
        return TopicProblem(
            f"exists with cleanup.policy={','.join(sorted(policy))}, so state that does not change would be deleted "
            f"by age",
            _set_by(stream, "cleanup.policy=compact"),
        )

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
            **({} if settings.ttl_ms is None else _expiring(settings.ttl_ms)),
            **settings.kafka_properties,
        }
        key = STORE_CHANGELOG_REPLICATION.named(store)
        return TopicSettings(read_as(COUNT, key, "3" if copies is None else copies), key, config)

    def _for_all(self, name: str) -> str:
        """The key of a property of all streams of the system."""
        return SYSTEM_STREAM_DEFAULTS.named(self._system, name)


def _expiring(ttl_ms: int) -> dict[str, str]:
    """Settings of a changelog whose records go when they are older than that."""
    shortest_ms, longest_ms = _SEGMENT_MS
    return {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(ttl_ms),
        "segment.ms": str(min(max(ttl_ms, shortest_ms), longest_ms)),
    }


def _expiry_problem(
    stream: str, store: str, topic: Mapping[str, str], own: Mapping[str, str], ttl_ms: int
) -> TopicProblem | None:
    policy, kept_ms = _words(topic.get("cleanup.policy", "")), int(topic.get("retention.ms", "-1"))
    key = STORE_TTL.named(store)
    if ("delete" not in policy and "cleanup.policy" not in own) or (
        kept_ms < 0 and "retention.ms" not in own
    ):
        return TopicProblem(
            f"exists with cleanup.policy={','.join(sorted(policy))} and retention.ms={kept_ms}, so what {key} lets "
            f"expire would stay in it for ever",
            _set_by(stream, f"cleanup.policy=[compact,delete],retention.ms={ttl_ms}"),
        )
    if "delete" in policy and 0 <= kept_ms < ttl_ms and "retention.ms" not in own:
        return TopicProblem(
            f"exists with retention.ms={kept_ms}, so entries would be lost before {key}={ttl_ms} when a store is "
            f"rebuilt",
            _set_by(stream, f"retention.ms={ttl_ms}"),
        )
    return None


def _words(policy: str) -> set[str]:
    return {word.strip() for word in policy.split(",") if word.strip()}


def _set_by(stream: str, settings: str) -> str:
    return (
        f"set it: kafka-configs --alter --entity-type topics --entity-name {stream} --add-config {settings}"
    )
