"""Settings of the Kafka keyed log, from a Samza configuration; logins are in `login`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.config.kafka_tuning import KafkaTuning, kafka_tuning
from grete.config.key import Key
from grete.config.key_tables import coordinator, task
from grete.config.settings import Settings
from grete.config.values import required_value_of
from grete.kafka.login import SettingsOrigin, settings_origin
from grete.kafka.login import client_settings as client_settings


@dataclass(frozen=True, slots=True)
class KafkaLogSettings:
    """How to reach the brokers (librdkafka's names, secrets resolved), and how the topic is made (S2-54, S2-55).

    `timeout_s` bounds every call of the log: within it brokers may go and come back. `transaction_timeout_s` is how
    long a writer that was paused inside an append holds back readers before the broker aborts it.
    """

    client: Mapping[str, str] = field(repr=False)
    replication_factor: int = 3
    segment_bytes: int = 26_214_400
    max_message_bytes: int = 1_000_012
    timeout_s: float = 30.0
    transaction_timeout_s: float = 10.0
    size_key: str = coordinator.MAX_MESSAGE_BYTES.name
    replication_key: str = coordinator.REPLICATION.name
    origin: SettingsOrigin = field(default_factory=SettingsOrigin)
    tuning: KafkaTuning = field(default_factory=KafkaTuning)


def coordinator_log_settings(settings: Settings, system: str) -> KafkaLogSettings:
    """Settings of the coordinator stream on the system `system`.

    Raises:
        ConfigError: no brokers, a security setting that only Java can use, or a number that is none.
    """
    return _settings(
        settings.raw,
        system,
        coordinator.REPLICATION,
        coordinator.SEGMENT_BYTES,
        coordinator.MAX_MESSAGE_BYTES,
    )


def checkpoint_log_settings(settings: Settings, system: str) -> KafkaLogSettings:
    """Settings of the checkpoint log on the system `system`.

    Raises:
        ConfigError: as for the coordinator stream.
    """
    return _settings(
        settings.raw, system, task.CHECKPOINT_REPLICATION, task.CHECKPOINT_SEGMENT, task.CHECKPOINT_MESSAGE
    )


def _settings(
    config: Mapping[str, str], system: str, copies: Key[int], segment: Key[int], largest: Key[int]
) -> KafkaLogSettings:
    return KafkaLogSettings(
        client_settings(config, system),
        replication_factor=required_value_of(config, copies),
        segment_bytes=required_value_of(config, segment),
        max_message_bytes=required_value_of(config, largest),
        size_key=largest.name,
        replication_key=copies.name,
        origin=settings_origin(config, system),
        tuning=kafka_tuning(config, system),
    )
