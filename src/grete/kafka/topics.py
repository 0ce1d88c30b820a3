"""Topics: created, described, configured, grown and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from grete.clock import Clock, Deadline
from grete.errors import StreamError, StreamNotFound, StreamUnreachable
from grete.kafka.client import KafkaConnection
from grete.kafka.errors import NOT_THERE, describe, done, is_temporary, reason_of, stream_errors, translated
from grete.kafka.library import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    KafkaError,
    KafkaException,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicCollection,
)
from grete.suggestions import did_you_mean

GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID)
"""No such topic."""
_NAME_REFUSED = (KafkaError.TOPIC_EXCEPTION, KafkaError._INVALID_ARG)
_PAUSES_S = (0.05, 0.05)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the brokers describe it. `id` changes when it is deleted and recreated.

    `leaderless` are the partitions of which nothing can be read or written now.
    """

    id: str
    partitions: int
    leaderless: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """With what a topic is made. `copies_key` is the key that decides how many copies, for the error."""

    copies: int
    copies_key: str
    config: Mapping[str, str] = field(default_factory=dict)


class Topics:
    """The topics of a Kafka system."""

    def __init__(self, connection: KafkaConnection, system: str, clock: Clock) -> None:
        self.system = system
        self._connection = connection
        self._clock = clock

    def names(self) -> list[str]:
        """Every topic but the brokers' own, sorted.

        Raises:
            StreamError: no answer.
        """
        with stream_errors(f"listing the topics in system {self.system!r}"):
            found = self._connection.admin.list_topics(timeout=self._connection.timeout_s).topics
        return sorted(name for name in found if name not in ("__consumer_offsets", "__transaction_state"))

    def find(self, name: str) -> TopicInfo | None:
        """The topic, None when it is not there. Tries again while brokers come back.

        Raises:
            StreamError: no answer in time, or the name is none.
        """
        try:
            return topic_info(self._connection, name)
        except KafkaException as error:
            if reason_of(error).code() in (*GONE, *_NAME_REFUSED):
                return None
            raise self._failed(f"describing {name}", error) from error

    def get(self, name: str) -> TopicInfo:
        """The topic.

        Raises:
            StreamNotFound: no such topic.
            StreamError: no answer.
        """
        found = self.find(name)
        if found is None:
            raise StreamNotFound(
                f"there is no stream {name!r} in system {self.system!r}{self._meant(name)}; create its topic, or "
                f"name it in task.outputs when the job writes it"
            )
        return found

    def _meant(self, name: str) -> str:
        """See `did_you_mean`; nothing where the brokers do not say what topics there are."""
        with suppress(StreamError):
            return did_you_mean(name, self.names())
        return ""

    def config(self, name: str) -> dict[str, str]:
        """The topic's configuration in force.

        Raises:
            StreamNotFound: no such topic.
            StreamError: no answer, or not allowed.
        """
        try:
            return topic_config(self._connection, name)
        except KafkaException as error:
            if reason_of(error).code() in GONE:
                self.get(name)
            raise self._failed(f"reading the configuration of {name}", error) from error

    def largest(self, name: str, *, again: bool = False) -> int:
        """How many bytes a record of the topic may have; `again` asks also where the answer is remembered.

        Raises:
            StreamNotFound: no such topic.
        """
        return int(self.config(name)["max.message.bytes"])

    def create(self, name: str, partitions: int, settings: TopicSettings) -> bool:
        """Make the topic; False when it is there already. Either way, brokers know of it on return.

        Raises:
            StreamError: too few brokers for the copies, a name that is none, or no answer.
        """
        try:
            is_new = create_topic(self._connection, name, partitions, settings)
        except KafkaException as error:
            refusal = too_few_brokers(error, name, settings)
            raise StreamError(refusal) if refusal else self._failed(f"making {name}", error) from error
        # another container's topic too may be unknown to the broker that answers next
        self._await(name, partitions if is_new else 1)
        return is_new

    def grow(self, name: str, partitions: int) -> None:
        """Let the topic have `partitions` partitions, more than it has. Tries again while brokers come back.

        Raises:
            StreamError: refused, or no answer.
        """
        new = [NewPartitions(name, partitions)]
        with stream_errors(f"adding partitions to {name} in system {self.system!r}"):
            try:
                self._connection.answer(
                    lambda wait_s: self._connection.admin.create_partitions(new, request_timeout=wait_s)[name]
                )
            except KafkaException as error:
                # that it has as many is the answer to a second request when that to the first was lost
                has_as_many = reason_of(error).code() == KafkaError.INVALID_PARTITIONS
                if not has_as_many or self.get(name).partitions != partitions:
                    raise
        self._await(name, partitions)

    def delete(self, name: str) -> None:
        """Remove the topic.

        Raises:
            StreamNotFound: no such topic.
            StreamError: refused, or no answer.
        """
        self.get(name)
        with stream_errors(f"deleting {name} in system {self.system!r}"):
            delete_topic(self._connection, name)

    def _await(self, name: str, partitions: int) -> None:
        """A topic that was made is known to other brokers a moment later."""
        deadline = Deadline(self._clock, self._connection.timeout_s, pauses_s=_PAUSES_S)
        while (found := self.find(name)) is None or found.partitions < partitions:
            if not deadline.pause():
                raise StreamError(f"topic {name} was made and did not become readable in time")

    def _failed(self, doing: str, error: KafkaException) -> StreamError:
        kind = StreamUnreachable if is_temporary(reason_of(error)) else StreamError
        return kind(f"{doing} in system {self.system!r}: {describe(reason_of(error))}")


class RememberedTopics(Topics):
    """As an executor needs them, requested once: partitions are only added, settings seldom set."""

    def __init__(self, connection: KafkaConnection, system: str, clock: Clock) -> None:
        super().__init__(connection, system, clock)
        self._topics: dict[str, TopicInfo] = {}
        self._configs: dict[str, dict[str, str]] = {}

    def get(self, name: str) -> TopicInfo:
        """As first found; see Topics."""
        if name not in self._topics:
            self._topics[name] = super().get(name)
        return self._topics[name]

    def config(self, name: str) -> dict[str, str]:
        """As first read; see Topics."""
        if name not in self._configs:
            self._configs[name] = super().config(name)
        return self._configs[name]

    def largest(self, name: str, *, again: bool = False) -> int:
        """As first read; see Topics."""
        if again:
            self._configs.pop(name, None)
        return super().largest(name)


def create_topic(connection: KafkaConnection, name: str, partitions: int, settings: TopicSettings) -> bool:
    """Make a topic; False when it is there already. Other brokers know of it a moment later.

    Raises:
        KafkaException: refused, or no answer.
    """
    wait_s = connection.timeout_s
    new = NewTopic(name, partitions, settings.copies, config=dict(settings.config))
    try:
        done(connection.admin.create_topics([new], request_timeout=wait_s)[name], wait_s + 1)
    except KafkaException as error:
        if reason_of(error).code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def too_few_brokers(error: KafkaException, name: str, settings: TopicSettings) -> str | None:
    """The message with the way out, when a topic was not made since it cannot have so many copies."""
    reason = reason_of(error)
    if reason.code() != KafkaError.INVALID_REPLICATION_FACTOR or is_temporary(reason):
        return None
    return (
        f"topic {name} cannot have {settings.copies} copies: {reason.str()} Start more brokers, or set "
        f"{settings.copies_key} to how many there are"
    )


def topic_info(connection: KafkaConnection, name: str) -> TopicInfo:
    """The topic as the brokers describe it.

    Raises:
        KafkaException: no such topic, no answer, or the name is none.
    """
    wanted = TopicCollection([name])
    found = connection.answer(
        lambda wait_s: connection.admin.describe_topics(wanted, request_timeout=wait_s)[name]
    )
    leaderless = frozenset(each.id for each in found.partitions if each.leader is None)
    return TopicInfo(str(found.topic_id), len(found.partitions), leaderless)


def topic_config(connection: KafkaConnection, name: str, *, own_only: bool = False) -> dict[str, str]:
    """The topic's configuration in force, or (`own_only`) what was set for this topic itself.

    Raises:
        KafkaException: no such topic, no answer, or not allowed.
    """
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries: dict[str, Any] = connection.answer(
        lambda wait_s: connection.admin.describe_configs([resource], request_timeout=wait_s)[resource]
    )
    dynamic_of_topic = 1
    return {
        key: entry.value
        for key, entry in entries.items()
        if not own_only or int(entry.source) == dynamic_of_topic
    }


def alter_topic_config(connection: KafkaConnection, name: str, changes: Mapping[str, str | None]) -> None:
    """Set keys of the topic's configuration; None goes back to the cluster's.

    Raises:
        LogError: refused, or no answer.
    """
    operations = AlterConfigOpType
    entries = [
        ConfigEntry(key, value, incremental_operation=operations.DELETE if value is None else operations.SET)
        for key, value in changes.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    wait_s = connection.timeout_s
    with translated(f"altering the configuration of topic {name}"):
        done(
            connection.admin.incremental_alter_configs([resource], request_timeout=wait_s)[resource],
            wait_s + 1,
        )


def delete_topic(connection: KafkaConnection, name: str) -> None:
    """Remove a topic; one that is not there is fine.

    Raises:
        KafkaException: refused, or no answer.
    """
    wait_s = connection.timeout_s
    try:
        done(connection.admin.delete_topics([name], request_timeout=wait_s)[name], wait_s + 1)
    except KafkaException as error:
        if reason_of(error).code() not in NOT_THERE:
            raise
