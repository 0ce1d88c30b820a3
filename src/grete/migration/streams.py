"""Systems and serdes; the settings of Kafka clients are in `clients`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from grete.config import aliases
from grete.config.settings import Settings
from grete.config.settings.systems import EMBEDDED_SYSTEM
from grete.migration.note import Note, Notes, NoteSection, Outcome

_ENGINE = re.compile(r"org\.apache\.samza\.system\.(\w+)\.")
_SERDE_OF_OBJECTS = ("serializable", "org.apache.samza.serializers.SerializableSerdeFactory")


def systems(config: Mapping[str, str]) -> Notes:
    """The kinds of systems."""
    for system in Settings.of(config).system_names:
        key = f"systems.{system}.samza.factory"
        kind = aliases.canonical(aliases.SYSTEMS, config[key])
        if kind in aliases.known_names(aliases.SYSTEMS):
            yield Note(NoteSection.STREAMS, key, Outcome.AS_IS, f"the kind of system `{kind}`")
        else:
            yield Note(
                NoteSection.STREAMS,
                key,
                Outcome.BLOCKS,
                f"there is no system of this kind ({', '.join(aliases.known_names(aliases.SYSTEMS))} are)",
                _around(config[key]),
            )


def _around(factory: str) -> str:
    match = _ENGINE.match(factory)
    what = match[1] if match else "it"
    return (
        f"let another job carry what is in {what} to Kafka and back, or write a plug-in: an entry point of the group "
        f"{aliases.SYSTEMS} ({EMBEDDED_SYSTEM} is the reference)"
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
                NoteSection.STREAMS,
                key,
                Outcome.BLOCKS,
                "Java objects are read by Java alone",
                _rewrite(name),
            )
        elif aliases.canonical(aliases.SERDES, value) in known:
            yield Note(
                NoteSection.STREAMS, key, Outcome.AS_IS, f"`{aliases.canonical(aliases.SERDES, value)}`"
            )
        elif ":" not in value:
            yield Note(
                NoteSection.STREAMS,
                key,
                Outcome.PORT,
                f"{value} is Java; write it as a grete.Serde, or use a built-in one ({', '.join(known)})",
                f"{key}=module:Class",
                {key: f"serdes:{name.title().replace('-', '').replace('_', '')}Serde"},
            )
    for key, value in config.items():
        if key.endswith((".key.serde", ".msg.serde")) and value == _SERDE_OF_OBJECTS[0]:
            yield Note(
                NoteSection.STREAMS,
                key,
                Outcome.BLOCKS,
                "Java objects are read by Java alone",
                _rewrite(value),
            )


def _rewrite(name: str) -> str:
    return f"let the writer use json or avro instead of {name} before the move, from one topic to another"
