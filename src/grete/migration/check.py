"""The whole of a Samza configuration, key by key: every key gets one note, and what `validate` refuses is among them.

Rules speak of keys whose meaning takes more than the table of keys. Any other key gets its note from the table. In
the end the configuration is validated as `--write` would write it, so that nothing is promised that `grete run`
refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from grete.config import aliases
from grete.config.derived import with_derived_keys
from grete.config.key import Key
from grete.config.keys import find_key
from grete.config.redact import redact_value
from grete.config.rules.validate import check as validated
from grete.config.rules.warnings import slips_of
from grete.migration.application import application
from grete.migration.note import Note, Notes, Outcome, Section, ordered
from grete.migration.state import checkpoints, cluster, coordination, stores
from grete.migration.streams import serdes, systems

RULES: tuple[Callable[[Mapping[str, str]], Notes], ...] = (
    application,
    systems,
    serdes,
    stores,
    checkpoints,
    coordination,
    cluster,
)
_PREFIXES = (
    ("systems.", Section.STREAMS),
    ("streams.", Section.STREAMS),
    ("serializers.", Section.STREAMS),
    ("task.inputs", Section.STREAMS),
    ("task.broadcast.inputs", Section.STREAMS),
    ("job.default.system", Section.STREAMS),
    ("stores", Section.STORES),
    ("job.changelog.", Section.STORES),
    ("blob.store.", Section.STORES),
    ("task.transactional.state.", Section.STORES),
    ("task.checkpoint.", Section.CHECKPOINTS),
    ("task.commit.", Section.CHECKPOINTS),
    ("task.live.checkpoint.", Section.CHECKPOINTS),
    ("job.checkpoint.", Section.CHECKPOINTS),
    ("job.coordinator", Section.COORDINATION),
    ("job.container.count", Section.COORDINATION),
    ("job.systemstreampartition.", Section.COORDINATION),
    ("job.config.", Section.COORDINATION),
    ("task.name.grouper.", Section.COORDINATION),
    ("job.debounce.", Section.COORDINATION),
    ("azure.", Section.COORDINATION),
    ("yarn.", Section.CLUSTER),
    ("cluster-manager.", Section.CLUSTER),
    ("samza.cluster-manager.", Section.CLUSTER),
    ("job.autosizing.", Section.CLUSTER),
    ("task.opts", Section.CLUSTER),
    ("metrics.", Section.METRICS),
    ("task.log4j.", Section.METRICS),
    ("job.diagnostics.", Section.METRICS),
    ("job.jmx.", Section.METRICS),
    ("sensitive.", Section.SECURITY),
    ("job.security.", Section.SECURITY),
    ("app.", Section.APPLICATION),
    ("task.", Section.APPLICATION),
    ("job.", Section.APPLICATION),
)


@dataclass(frozen=True, slots=True)
class Migration:
    """The outcome for a configuration. `written` is what `grete run` gets, save for the code that is to be ported."""

    config: Mapping[str, str]
    notes: tuple[Note, ...]
    written: Mapping[str, str]

    @property
    def blocks(self) -> bool:
        """Whether something will not work, whatever is ported."""
        return any(note.outcome is Outcome.BLOCKS for note in self.notes)

    @property
    def needs_port(self) -> bool:
        """Whether code has to be written in Python."""
        return any(note.outcome is Outcome.PORT for note in self.notes)


def check(config: Mapping[str, str]) -> Migration:
    """Judge a configuration as Samza's users have it. No broker is asked."""
    named = _named(config)
    found: dict[str, Note] = {}
    for rule in RULES:
        for note in rule(named):
            known = found.get(note.key)
            if known is None or list(Outcome).index(note.outcome) > list(Outcome).index(known.outcome):
                found[note.key] = note
    slips = slips_of(config)
    for key in config:
        if key not in found:
            found[key] = _by_table(key, config[key], meant=slips.get(key))
    written = _written(config, found.values())
    for note in _refused(written, found):
        found[note.key] = note
    return Migration(dict(config), tuple(ordered(found.values())), written)


def _named(config: Mapping[str, str]) -> dict[str, str]:
    """With `job.name` and `job.id` as `app.*` gives them, and nothing else that grete adds."""
    full = with_derived_keys(config)
    return {**config, **{key: full[key] for key in ("job.name", "job.id") if key in full}}


def _written(config: Mapping[str, str], notes: Iterable[Note]) -> dict[str, str]:
    changes = {key: value for note in notes for key, value in note.changes.items()}
    added = {key: value for key, value in changes.items() if value is not None}
    return {key: value for key, value in config.items() if changes.get(key, value) is not None} | added


def _by_table(key: str, value: str, *, meant: str | None = None) -> Note:
    section = next((section for prefix, section in _PREFIXES if key.startswith(prefix)), Section.OTHER)
    known = find_key(key)
    if known is None:
        doubt = f"no key of Samza's or grete's; did you mean {meant}?" if meant else ""
        return Note(section, key, Outcome.AS_IS, "the application reads it from context.config", doubt)
    if known.no_effect:
        return Note(section, key, Outcome.NO_EFFECT, known.no_effect)
    return Note(section, key, Outcome.AS_IS, _meaning(known, key, value))


def _meaning(known: Key[object], key: str, value: str) -> str:
    if key in known.renamed_from:
        return f"today's name is {known.name}"
    if known.aliases:
        own = aliases.canonical(known.aliases, value)
        return f"`{own}`" if own != value else ""
    return ""


def _refused(written: Mapping[str, str], found: Mapping[str, Note]) -> Notes:
    """Further refusals of validation, each under the key that it names."""
    full = with_derived_keys(written)
    for problem in validated(full).errors:
        named = [key for key in {**full, **found} if key in problem]
        keys = named or [problem.partition(":")[0].partition("=")[0].strip()]
        key = max(keys, key=len)
        if found.get(key) is not None and found[key].outcome is Outcome.BLOCKS:
            continue
        if key == "task.class" and any(note.outcome is Outcome.BLOCKS for note in found.values()):
            continue
        section = _by_table(key, "").section
        shown = redact_value(key, written.get(key, ""))
        yield Note(section, key, Outcome.BLOCKS, problem if key in problem else f"{shown}: {problem}")
