"""The whole of a Samza configuration, key by key: every key gets one note, and what `validate` refuses is among them.

Rules speak of keys whose meaning takes more than the table of keys. Any other key gets its note from the table. In
the end the configuration is validated as `--write` would write it, so that nothing is promised that `grete run`
refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from grete.config.derived import with_derived_keys
from grete.config.key_tables.job import TASK_CLASS
from grete.config.keys import find_key
from grete.config.redact import redact_value
from grete.config.rewriters import StreamLister, regex_rewriters, with_new_inputs
from grete.config.rules.validate import check as validated
from grete.config.rules.warnings import slips_of
from grete.config.settings.systems import systems_without_factory
from grete.migration.application import application
from grete.migration.by_table import note_by_table, section_of
from grete.migration.clients import clients, with_todays_names
from grete.migration.in_code import regexes, stand_ins
from grete.migration.note import Note, Notes, Outcome, ordered
from grete.migration.state import checkpoints, cluster, coordination, stores
from grete.migration.streams import serdes, systems

_KEY = re.compile(r"[a-z][\w-]*(?:\.[\w-]+)+")
_PLACEHOLDER = re.compile(r"__[A-Za-z]\w*__|\{\{.*?\}\}|@\w+@|\$\{(?!env:|file:)[^{}]*\}|<[A-Za-z][\w -]*>")
RULES: tuple[Callable[[Mapping[str, str]], Notes], ...] = (
    application,
    systems,
    clients,
    serdes,
    stores,
    checkpoints,
    coordination,
    cluster,
)


@dataclass(frozen=True, slots=True)
class Migration:
    """The outcome for a configuration. `written` is what `grete run` gets, save for the code that is to be ported.

    `run` is what it makes of that: completed, and with the inputs that regexes chose if the systems were asked.
    """

    config: Mapping[str, str]
    notes: tuple[Note, ...]
    written: Mapping[str, str]
    run: Mapping[str, str]

    @property
    def blocks(self) -> bool:
        """Whether something will not work, whatever is ported."""
        return any(note.outcome is Outcome.BLOCKS for note in self.notes)

    @property
    def needs_port(self) -> bool:
        """Whether code has to be written in Python."""
        return any(note.outcome is Outcome.PORT for note in self.notes)


def check(config: Mapping[str, str], *, list_streams: StreamLister | None = None) -> Migration:
    """Judge a configuration as Samza's users have it. No broker is asked, but through `list_streams`.

    Raises:
        ConfigError: a regex for `list_streams` that is none.
    """
    named = with_todays_names(_named(config))
    found: dict[str, Note] = {}
    for note in chain(regexes(config, list_streams), *(rule(named) for rule in RULES)):
        known = found.get(note.key)
        if known is None or list(Outcome).index(note.outcome) > list(Outcome).index(known.outcome):
            found[note.key] = note
    found = {key: note for key, note in found.items() if key in config or note.key not in named}
    slips, no_systems = slips_of(config), systems_without_factory(config)
    for key in config:
        if key not in found:
            found[key] = note_by_table(config, key, slips.get(key), no_systems)
    written = _written(config, found.values())
    run = with_derived_keys(written)
    judged = with_derived_keys({**written, **stand_ins(config)})
    if list_streams is not None and regex_rewriters(config):
        run = judged = with_derived_keys(with_new_inputs(written, list_streams=list_streams))
    for note in _refused(judged, found):
        found[note.key] = note
    return Migration(dict(config), tuple(ordered(found.values())), written, run)


def _named(config: Mapping[str, str]) -> dict[str, str]:
    """With `job.name` and `job.id` as `app.*` gives them, and nothing else that grete adds."""
    full = with_derived_keys(config)
    return {**config, **{key: full[key] for key in ("job.name", "job.id") if key in full}}


def _written(config: Mapping[str, str], notes: Iterable[Note]) -> dict[str, str]:
    changes = {key: value for note in notes for key, value in note.changes.items()}
    added = {key: value for key, value in changes.items() if value is not None}
    return {key: value for key, value in config.items() if changes.get(key, value) is not None} | added


def _refused(judged: Mapping[str, str], found: Mapping[str, Note]) -> Iterator[Note]:
    """Further refusals of validation, each under the key that it names; what a rule has refused is said already."""
    refused: dict[str, list[str]] = {}
    for problem in validated(judged).errors:
        refused.setdefault(_key_of(problem, {**judged, **found}), []).append(problem)
    is_blocked = any(note.outcome is Outcome.BLOCKS for note in found.values())
    for key, problems in refused.items():
        known = found.get(key)
        is_said = known is not None and known.outcome is Outcome.BLOCKS
        if not is_said and not (key == TASK_CLASS.name and is_blocked):
            yield _refusal(key, judged.get(key, ""), problems)


def _key_of(problem: str, keys: Iterable[str]) -> str:
    """The key that a problem speaks of: the longest of the configuration's, else the first that is a known one."""
    named = [key for key in keys if key in problem]
    if named:
        return max(named, key=len)
    words = (word.rstrip(".") for word in _KEY.findall(problem))
    return next((word for word in words if find_key(word)), problem.partition(":")[0])


def _refusal(key: str, value: str, problems: list[str]) -> Note:
    section = section_of(key)
    placeholder = _PLACEHOLDER.search(value)
    if placeholder is not None:
        says = f"{placeholder[0]} is a placeholder, which is filled in elsewhere"
        return Note(section, key, Outcome.BLOCKS, says, "check the file as it is when that is done")
    shown = redact_value(key, value)
    said = [problem if key in problem else f"{shown}: {problem}" for problem in problems]
    return Note(section, key, Outcome.BLOCKS, "; ".join(said))
