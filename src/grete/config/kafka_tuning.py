"""Tuning of a job's Kafka clients, from Java's words (`systems.<system>.producer.*`, `.consumer.*`) to librdkafka's.

Followed is what changes how fast and how small records travel. What would weaken a promise (acks, idempotence,
transactions, groups), what grete has to decide itself, and what is Java's own is not, and is named in a warning.
Pipelines read and write through Spark's Java clients, which get it all but the first kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from grete.config.choices import Compression
from grete.config.kafka_old_names import TODAYS
from grete.config.key import Type, bounded, one_of
from grete.config.redact import redact_value
from grete.config.settings import Settings
from grete.errors import ConfigError

_CLIENT = re.compile(r"systems\.([^.]+)\.(consumer|producer)\.(.+)")
_ACCESS = re.compile(
    r"(security|sasl|ssl)\..+|bootstrap\.servers|client\.id|connections\.max\.idle\.ms|metadata\.max\.age\.ms"
    r"|reconnect\.backoff(\.max)?\.ms"
)
"""Where the brokers are and how to get in: `kafka_login` reads it."""
_ELSEWHERE = ("isolation.level", "zookeeper.connect")
"""The first has a warning of its own; the second every old Samza configuration has."""
_INT32 = 2**31 - 1
_LINGER_MS = 5_000
"""Well below the shortest transaction: a record that waits longer than its transaction lasts is never written."""

_Settings = Mapping[str, tuple[str, Type[str] | Type[int]]]
_BOTH: _Settings = {
    "retry.backoff.ms": ("retry.backoff.ms", bounded("a number of milliseconds", 1, 300_000)),
    "retry.backoff.max.ms": ("retry.backoff.max.ms", bounded("a number of milliseconds", 1, 300_000)),
    "send.buffer.bytes": ("socket.send.buffer.bytes", bounded("a number of bytes", -1, 100_000_000)),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", bounded("a number of bytes", -1, 100_000_000)),
}
_COMPRESSION = one_of(Compression)
_FOLLOWED: Mapping[str, _Settings] = {
    "producer": {
        **_BOTH,
        "compression.type": ("compression.type", _COMPRESSION),
        "linger.ms": ("linger.ms", bounded("a number of milliseconds", 0, _LINGER_MS)),
        "request.timeout.ms": ("request.timeout.ms", bounded("a number of milliseconds", 1, 900_000)),
    },
    "consumer": {
        **_BOTH,
        "client.rack": ("client.rack", Type("text", str)),
        "fetch.min.bytes": ("fetch.min.bytes", bounded("a number of bytes", 1, 100_000_000)),
        "fetch.max.wait.ms": ("fetch.wait.max.ms", bounded("a number of milliseconds", 0, 300_000)),
        "fetch.max.bytes": ("fetch.max.bytes", bounded("a number of bytes", 1, _INT32 - 512)),
        "max.partition.fetch.bytes": (
            "max.partition.fetch.bytes",
            bounded("a number of bytes", 1, 1_000_000_000),
        ),
    },
}
_EXACTLY_ONCE = "records are written and read exactly once whatever is said here"
_DECIDED = "grete decides it, by its transactions and by what the topics take"
_GONE = "of Kafka's clients before 0.9, which found brokers and one another through ZooKeeper"
_ZOOKEEPERS = re.compile(r"zk\..+|zookeeper\..+|rebalance\..+|mirror\.topics\..+|consumer(id|\.id)")
_JAVAS = "Java's own; librdkafka, which grete's clients are made of, has nothing like it"
_REASONS = {
    **dict.fromkeys(
        ("acks", "enable.idempotence", "transactional.id", "producer.type"),
        _EXACTLY_ONCE,
    ),
    **dict.fromkeys(
        ("group.id", "group.instance.id", "enable.auto.commit", "auto.commit.interval.ms"), _EXACTLY_ONCE
    ),
    **dict.fromkeys(("max.in.flight.requests.per.connection", "retries"), _EXACTLY_ONCE),
    **dict.fromkeys(("transaction.timeout.ms", "delivery.timeout.ms", "max.block.ms"), _DECIDED),
    **dict.fromkeys(
        ("batch.size", "max.request.size", "buffer.memory", "max.poll.records", "check.crcs"), _DECIDED
    ),
    "auto.offset.reset": "where to start is said by samza.offset.default alone",
    "partitioner.class": "see samza.partitioner",
    **dict.fromkeys(
        ("serializer.class", "key.serializer.class", "key.serializer", "value.serializer"),
        "see samza.key.serde and samza.msg.serde",
    ),
    **dict.fromkeys(("key.deserializer", "value.deserializer"), "see samza.key.serde and samza.msg.serde"),
}
_AS_GRETE_DOES = {"acks": ("all", "-1"), "enable.idempotence": ("true",), "enable.auto.commit": ("false",)}


@dataclass(frozen=True, slots=True)
class KafkaTuning:
    """librdkafka's settings of producers and consumers."""

    producer: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)

    @property
    def log_producer(self) -> dict[str, str]:
        """For a log, whose batches are its own matter: how records are compressed."""
        return {name: value for name, value in self.producer.items() if name == "compression.type"}


def kafka_tuning(config: Mapping[str, str], system: str) -> KafkaTuning:
    """The clients of a Kafka system as the configuration has them.

    Raises:
        ConfigError: a value that is none, naming its key.
    """
    found: dict[str, dict[str, str]] = {"producer": {}, "consumer": {}}
    for client, settings in _FOLLOWED.items():
        for name, (ours, type_) in settings.items():
            key = f"systems.{system}.{client}.{name}"
            if not config.get(key, "").strip():
                continue
            try:
                value = type_.read(config[key])
            except ValueError as error:
                raise ConfigError(f"{key}={redact_value(key, config[key])!r}: {error}") from error
            found[client][ours] = (
                "0" if value == -1 else str(value)
            )  # Java's -1 is the system's own size, as 0 here
    return KafkaTuning(**found)


def is_followed(client: str, name: str) -> bool:
    """Whether a setting of Java's `consumer` or `producer` tunes grete's."""
    return name in _FOLLOWED[client]


def reason_not_followed(name: str, value: str) -> str | None:
    """Why a setting is not followed; None where it sets what grete does anyway, or another rule names it."""
    if _ACCESS.fullmatch(name) or name in _ELSEWHERE or value.strip().lower() in _AS_GRETE_DOES.get(name, ()):
        return None
    if name in TODAYS:
        return f"the name of {TODAYS[name]} before Kafka 0.9"
    return _REASONS.get(name, _GONE if _ZOOKEEPERS.fullmatch(name) else _JAVAS)


def tuning_problems(config: Mapping[str, str]) -> Iterator[str]:
    """Settings that are followed and whose values are none."""
    for system in _kafka_systems(config):
        try:
            kafka_tuning(config, system)
        except ConfigError as error:
            yield str(error)


def not_followed(config: Mapping[str, str]) -> dict[str, list[str]]:
    """The keys of clients' settings that are not followed, by the reason."""
    found: dict[str, list[str]] = {}
    systems = _kafka_systems(config)
    for key in sorted(config):
        match = _CLIENT.fullmatch(key)
        if match is None or match[1] not in systems or is_followed(match[2], match[3]):
            continue
        reason = reason_not_followed(match[3], config[key])
        is_passed_to_spark = "app.class" in config and reason in (_DECIDED, _JAVAS)
        if reason is not None and not is_passed_to_spark:
            found.setdefault(reason, []).append(key)
    return found


def _kafka_systems(config: Mapping[str, str]) -> list[str]:
    settings = Settings.of(config)
    return [name for name in settings.system_names if settings.system(name).capabilities.kafka_topics]
