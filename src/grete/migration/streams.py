"""Systems, inputs, outputs and serdes; who chooses the partition of an output; how brokers are reached."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from grete.config import aliases
from grete.config.derived import READ_COMMITTED, isolation_key, kafka_systems_of_logs
from grete.config.kafka_tuning import is_followed, reason_not_followed
from grete.config.redact import is_secret_key
from grete.config.secrets import has_reference
from grete.config.settings import Settings
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.errors import ConfigError
from grete.kafka.settings import client_settings
from grete.migration.note import Note, Notes, Outcome, Section

_CLIENT = re.compile(r"systems\.([^.]+)\.(consumer|producer)\.(.+)")
_REFERENCE = re.compile(r"\$\{(?:env|file):[^{}]*\}")
_SECURITY = ("security.", "sasl.", "ssl.")
_LOCATION = re.compile(r"ssl\.(truststore|keystore)\.location")
_PARTS_OF_A_LOGIN = (
    *(("ssl.truststore.",), ("ssl.keystore.",)),
    *(("ssl.truststore.", "sasl.jaas."), ("ssl.keystore.", "sasl.jaas.")),
)
_HELD_BY_ZOOKEEPER = "zookeeper.connect"
_ENGINE = re.compile(r"org\.apache\.samza\.system\.(\w+)\.")
_SERDE_OF_OBJECTS = ("serializable", "org.apache.samza.serializers.SerializableSerdeFactory")


def systems(config: Mapping[str, str]) -> Notes:
    """The kinds of systems, and the settings of their clients."""
    for system in Settings.of(config).system_names:
        key = f"systems.{system}.samza.factory"
        kind = aliases.canonical(aliases.SYSTEMS, config[key])
        if kind in aliases.known_names(aliases.SYSTEMS):
            yield Note(Section.STREAMS, key, Outcome.AS_IS, f"the kind of system `{kind}`")
        else:
            yield Note(
                Section.STREAMS,
                key,
                Outcome.BLOCKS,
                f"there is no system of this kind ({', '.join(aliases.known_names(aliases.SYSTEMS))} are)",
                _around(config[key]),
            )
        if Settings.of(config).system(system).capabilities.kafka_topics:
            yield from _brokers(config, system)
    yield from _clients(config)
    yield from _isolation(config)


def _around(factory: str) -> str:
    match = _ENGINE.match(factory)
    what = match[1] if match else "it"
    return (
        f"let another job carry what is in {what} to Kafka and back, or write a plug-in: an entry point of the group "
        f"{aliases.SYSTEMS} ({EMBEDDED_SYSTEM} is the reference)"
    )


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
        yield Note(Section.SECURITY, key, Outcome.BLOCKS, problem, _security_way_out(key))


def _without(config: Mapping[str, str], system: str, parts: Iterable[str]) -> dict[str, str]:
    own = f"systems.{system}."
    return {k: v for k, v in config.items() if not (k.startswith(own) and any(part in k for part in parts))}


def _key_of(config: Mapping[str, str], system: str, problem: str) -> str:
    """The key that a problem of a system's clients speaks of."""
    clients = [match for match in map(_CLIENT.fullmatch, config) if match and match[1] == system]
    named = [match[0] for match in clients if match[3] in problem]
    return max(named, key=len) if named else f"systems.{system}.producer.bootstrap.servers"


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
        if match is None or not Settings.of(config).system(match[1]).capabilities.kafka_topics:
            continue
        name = match[3]
        if name.startswith(_SECURITY):
            yield _security(config, key)
        elif name == "partitioner.class":
            yield Note(
                Section.PARTITIONER,
                key,
                Outcome.NO_EFFECT,
                "Samza chooses the partition of a message with a key by itself, by the key's hashCode, and so does "
                "grete; messages without a key are placed by the task",
                "samza.partitioner=kafka for Kafka's own; or collector.send(..., partition=number)",
            )
        elif name != _HELD_BY_ZOOKEEPER:
            reason = None if is_followed(match[2], name) else reason_not_followed(name, config[key])
            outcome = Outcome.AS_IS if reason is None else Outcome.NO_EFFECT
            yield Note(Section.STREAMS, key, outcome, reason or "")


def _security(config: Mapping[str, str], key: str) -> Note:
    if is_secret_key(key) and not has_reference(config[key]):
        return Note(
            Section.SECURITY,
            key,
            Outcome.AS_IS,
            "it is written out, and so will be kept in the coordinator stream",
            "write ${env:NAME} or ${file:/path} for the secret part: it is read only where a client is opened",
        )
    return Note(Section.SECURITY, key, Outcome.AS_IS)


def _isolation(config: Mapping[str, str]) -> Notes:
    for system in kafka_systems_of_logs(config):
        key = isolation_key(system)
        level = config.get(key, "").strip()
        if level != READ_COMMITTED:
            yield Note(
                Section.STREAMS,
                key,
                Outcome.MAPPED,
                "grete writes in transactions: without it, Samza's consumers take aborted records for written ones",
                changes={key: READ_COMMITTED},
            )


def serdes(config: Mapping[str, str]) -> Notes:
    """Serdes that are no class of Samza's have to be written in Python."""
    known = aliases.known_names(aliases.SERDES)
    for key, value in config.items():
        if not key.startswith("serializers.registry.") or not key.endswith(".class"):
            continue
        name = key[len("serializers.registry.") : -len(".class")]
        if value in _SERDE_OF_OBJECTS:
            yield Note(
                Section.STREAMS, key, Outcome.BLOCKS, "Java objects are read by Java alone", _rewrite(name)
            )
        elif aliases.canonical(aliases.SERDES, value) in known:
            yield Note(Section.STREAMS, key, Outcome.AS_IS, f"`{aliases.canonical(aliases.SERDES, value)}`")
        elif ":" not in value:
            yield Note(
                Section.STREAMS,
                key,
                Outcome.PORT,
                f"{value} is Java; write it as a grete.Serde, or use a built-in one ({', '.join(known)})",
                f"{key}=module:Class",
                {key: f"serdes:{name.title().replace('-', '').replace('_', '')}Serde"},
            )
    for key, value in config.items():
        if key.endswith((".key.serde", ".msg.serde")) and value == _SERDE_OF_OBJECTS[0]:
            yield Note(
                Section.STREAMS, key, Outcome.BLOCKS, "Java objects are read by Java alone", _rewrite(value)
            )


def _rewrite(name: str) -> str:
    return f"let the writer use json or avro instead of {name} before the move, from one topic to another"
