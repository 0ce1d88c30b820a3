"""Settings of Kafka clients: how brokers are reached, what tunes a client, who chooses the partition of an output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from grete.config.derived import READ_COMMITTED, isolation_key, kafka_systems_of_logs
from grete.config.kafka_old_names import SERVERS, TODAYS, todays_value
from grete.config.kafka_tuning import is_followed, reason_not_followed
from grete.config.redact import is_secret_key
from grete.config.secrets import has_reference
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.kafka.settings import client_settings
from grete.migration.note import Note, Notes, NoteSection, Outcome

_CLIENT = re.compile(r"systems\.([^.]+)\.(consumer|producer)\.(.+)")
_REFERENCE = re.compile(r"\$\{(?:env|file):[^{}]*\}")
_SECURITY = ("security.", "sasl.", "ssl.")
_LOCATION = re.compile(r"ssl\.(truststore|keystore)\.location")
_PARTS_OF_A_LOGIN = (
    *(("ssl.truststore.",), ("ssl.keystore.",)),
    *(("ssl.truststore.", "sasl.jaas."), ("ssl.keystore.", "sasl.jaas.")),
)
_HELD_BY_ZOOKEEPER = "zookeeper.connect"


def clients(config: Mapping[str, str]) -> Notes:
    """The settings of the clients of Kafka systems. `config` has today's names (`with_todays_names`)."""
    for system in Settings.of(config).system_names:
        if _is_on_kafka(config, system):
            yield from _brokers(config, system)
    yield from _clients(config)
    yield from _isolation(config)


def _brokers(config: Mapping[str, str], system: str) -> Notes:
    """Whether librdkafka can log in: Java's key stores and login modules cannot be used."""
    readable = {key: _REFERENCE.sub("reference", value) for key, value in config.items()}
    problems = []
    for left_out in _PARTS_OF_A_LOGIN:  # the reader of settings ends at the first problem
        try:
            client_settings(_without(readable, system, left_out), system)
        except ConfigError as error:
            problems += [text for text in map(str, error.problems) if text not in problems]
    for problem in problems:
        key = _key_of(config, system, problem)
        if key.endswith(SERVERS):
            yield Note(NoteSection.STREAMS, key, Outcome.BLOCKS, problem, _servers_way_out(config, system))
        else:
            yield Note(NoteSection.SECURITY, key, Outcome.BLOCKS, problem, _security_way_out(key))


def _without(config: Mapping[str, str], system: str, parts: Iterable[str]) -> dict[str, str]:
    own = f"systems.{system}."
    return {k: v for k, v in config.items() if not (k.startswith(own) and any(part in k for part in parts))}


def _key_of(config: Mapping[str, str], system: str, problem: str) -> str:
    """The key that a problem of a system's clients speaks of."""
    clients = [match for match in map(_CLIENT.fullmatch, config) if match and match[1] == system]
    named = [match[0] for match in clients if match[3] in problem]
    return max(named, key=len) if named else f"systems.{system}.producer.bootstrap.servers"


def _servers_way_out(config: Mapping[str, str], system: str) -> str:
    """Kafka 0.7 found brokers through ZooKeeper, where they are still written."""
    keys = (f"systems.{system}.{client}.{_HELD_BY_ZOOKEEPER}" for client in ("consumer", "producer"))
    zookeeper = next((config[key] for key in keys if config.get(key, "").strip()), None)
    return f"ZooKeeper knows them: zookeeper-shell.sh {zookeeper} ls /brokers/ids" if zookeeper else ""


def _security_way_out(key: str) -> str:
    match = _LOCATION.search(key)
    if match is None:
        return "use SASL PLAIN or SCRAM, or TLS with PEM files"
    export = "openssl pkcs12 -in store.p12 -nodes -out store.pem"
    return (
        f"keytool -importkeystore -srckeystore {match[1]}.jks -destkeystore store.p12 -deststoretype PKCS12; "
        f"{export}; then ssl.{match[1]}.type=PEM, which Java reads as well"
    )


def _clients(config: Mapping[str, str]) -> Notes:
    for key in config:
        match = _CLIENT.fullmatch(key)
        if match is None or not _is_on_kafka(config, match[1]):
            continue
        name = match[3]
        if name.startswith(_SECURITY):
            yield _security(config, key)
        elif name == "partitioner.class":
            yield Note(
                NoteSection.PARTITIONER,
                key,
                Outcome.NO_EFFECT,
                "Samza chooses the partition of a message with a key by itself, by the key's hashCode, and so does "
                "grete; messages without a key are placed by the task",
                "samza.partitioner=kafka for Kafka's own; or collector.send(..., partition=number)",
            )
        elif name in TODAYS:
            yield _old_name(config, match)
        elif name != _HELD_BY_ZOOKEEPER:
            reason = None if is_followed(match[2], name) else reason_not_followed(name, config[key])
            outcome = Outcome.AS_IS if reason is None else Outcome.NO_EFFECT
            yield Note(NoteSection.STREAMS, key, outcome, reason or "")


def _old_name(config: Mapping[str, str], match: re.Match[str]) -> Note:
    """The note on a setting by its name before Kafka 0.9. `config` has today's names as well."""
    key, todays = match[0], _todays_key(match)
    name, value = TODAYS[match[3]], todays_value(match[3], config[match[0]])
    old = f"the name of {name} before Kafka 0.9"
    if config.get(todays) != value:
        return Note(NoteSection.STREAMS, key, Outcome.NO_EFFECT, f"{old}; {todays} is set, and stands")
    reason = None if is_followed(match[2], name) else reason_not_followed(name, value)
    if reason is not None:
        return Note(NoteSection.STREAMS, key, Outcome.NO_EFFECT, f"{old}; {reason}")
    return Note(NoteSection.STREAMS, key, Outcome.MAPPED, old, changes={key: None, todays: value})


def _todays_key(match: re.Match[str]) -> str:
    client = "producer" if TODAYS[match[3]] == SERVERS else match[2]
    return f"systems.{match[1]}.{client}.{TODAYS[match[3]]}"


def with_todays_names(config: Mapping[str, str]) -> dict[str, str]:
    """The configuration with today's names of settings beside the old ones; what is set by today's name stands."""
    found = dict(config)
    for match in filter(None, map(_CLIENT.fullmatch, config)):
        if match[3] in TODAYS and _is_on_kafka(config, match[1]):
            found.setdefault(_todays_key(match), todays_value(match[3], config[match[0]]))
    return found


def _is_on_kafka(config: Mapping[str, str], system: str) -> bool:
    return Settings.of(config).system(system).capabilities.kafka_topics


def _security(config: Mapping[str, str], key: str) -> Note:
    if is_secret_key(key) and not has_reference(config[key]):
        return Note(
            NoteSection.SECURITY,
            key,
            Outcome.AS_IS,
            "it is written out, and so will be kept in the coordinator stream",
            "write ${env:NAME} or ${file:/path} for the secret part: it is read only where a client is opened",
        )
    return Note(NoteSection.SECURITY, key, Outcome.AS_IS)


def _isolation(config: Mapping[str, str]) -> Notes:
    for system in kafka_systems_of_logs(config):
        key = isolation_key(system)
        level = config.get(key, "").strip()
        if level != READ_COMMITTED:
            yield Note(
                NoteSection.STREAMS,
                key,
                Outcome.MAPPED,
                "grete writes in transactions: without it, Samza's consumers take aborted records for written ones",
                changes={key: READ_COMMITTED},
            )
