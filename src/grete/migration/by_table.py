"""The note on a key of which no rule speaks: by the table of keys, or by what nobody reads it for."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from grete.config import aliases
from grete.config.key import Key
from grete.config.keys import find_key
from grete.config.settings import Settings
from grete.migration.in_code import is_in_code
from grete.migration.note import Note, NoteSection, Outcome

_PREFIXES = (
    ("systems.", NoteSection.STREAMS),
    ("streams.", NoteSection.STREAMS),
    ("serializers.", NoteSection.STREAMS),
    ("task.inputs", NoteSection.STREAMS),
    ("task.broadcast.inputs", NoteSection.STREAMS),
    ("job.default.system", NoteSection.STREAMS),
    ("stores", NoteSection.STORES),
    ("job.changelog.", NoteSection.STORES),
    ("blob.store.", NoteSection.STORES),
    ("task.transactional.state.", NoteSection.STORES),
    ("task.checkpoint.", NoteSection.CHECKPOINTS),
    ("task.commit.", NoteSection.CHECKPOINTS),
    ("task.live.checkpoint.", NoteSection.CHECKPOINTS),
    ("job.checkpoint.", NoteSection.CHECKPOINTS),
    ("job.coordinator", NoteSection.COORDINATION),
    ("job.container.count", NoteSection.COORDINATION),
    ("job.systemstreampartition.", NoteSection.COORDINATION),
    ("job.config.", NoteSection.COORDINATION),
    ("task.name.grouper.", NoteSection.COORDINATION),
    ("job.debounce.", NoteSection.COORDINATION),
    ("azure.", NoteSection.COORDINATION),
    ("yarn.", NoteSection.CLUSTER),
    ("cluster-manager.", NoteSection.CLUSTER),
    ("samza.cluster-manager.", NoteSection.CLUSTER),
    ("job.autosizing.", NoteSection.CLUSTER),
    ("task.opts", NoteSection.CLUSTER),
    ("metrics.", NoteSection.METRICS),
    ("task.log4j.", NoteSection.METRICS),
    ("job.diagnostics.", NoteSection.METRICS),
    ("job.jmx.", NoteSection.METRICS),
    ("sensitive.", NoteSection.SECURITY),
    ("job.security.", NoteSection.SECURITY),
    ("app.", NoteSection.APPLICATION),
    ("task.", NoteSection.APPLICATION),
    ("job.", NoteSection.APPLICATION),
)
_OF_SYSTEM = re.compile(r"systems\.([^.]+)\.(.+)")
_PASSED_ON = ("consumer.", "producer.", "streams.", "default.stream.")
_IGNORED = "Samza ignores it too"


def section_of(key: str) -> NoteSection:
    """The subject of a key, by its first parts."""
    return next((section for prefix, section in _PREFIXES if key.startswith(prefix)), NoteSection.OTHER)


def note_by_table(config: Mapping[str, str], key: str, meant: str | None, no_systems: Container[str]) -> Note:
    """The note on a key of the configuration.

    `meant` is the known key that it nearly is, `no_systems` are those without a factory.
    """
    section, known = section_of(key), find_key(key)
    if known is not None and known.no_effect:
        return Note(section, key, Outcome.NO_EFFECT, known.no_effect)
    if known is not None and not known.is_open:
        return Note(section, key, Outcome.AS_IS, _meaning(known, key, config[key]))
    if _is_of_another_kind(config, key):
        return Note(section, key, Outcome.AS_IS, "a setting of its system's own code")
    reader = "" if known is not None else "the application reads it from context.config"
    if reader and section is not NoteSection.OTHER:
        reader = f"no key of Samza's or grete's; {reader}"
    ignored = _ignored(config, key, no_systems) or (_IGNORED if meant else "")
    if ignored:
        return Note(section, key, Outcome.NO_EFFECT, ignored, f"did you mean {meant}?" if meant else "")
    return Note(section, key, Outcome.AS_IS, reader)


def _meaning(known: Key[object], key: str, value: str) -> str:
    if key in known.renamed_from:
        return f"today's name is {known.name}"
    if known.aliases:
        own = aliases.canonical(known.aliases, value)
        return f"`{own}`" if own != value else ""
    return ""


def _is_of_another_kind(config: Mapping[str, str], key: str) -> bool:
    """Whether its system is of a kind that grete has not: its factory may read whatever it likes."""
    match = _OF_SYSTEM.fullmatch(key)
    return match is not None and Settings.of(config).system(match[1]).kind not in aliases.known_names(
        aliases.SYSTEMS
    )


def _ignored(config: Mapping[str, str], key: str, no_systems: Container[str]) -> str:
    """Why neither grete nor Samza reads a key of a system; empty where somebody may."""
    match = _OF_SYSTEM.fullmatch(key)
    if match is None or is_in_code(config):
        return ""
    if match[1] in no_systems:
        return f"{_IGNORED}: systems.{match[1]}.samza.factory is not set, so there is no such system"
    return "" if match[2].startswith(_PASSED_ON) else _IGNORED
