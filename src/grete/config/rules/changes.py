"""Differences of two configurations, the restart that each needs, and which are refused (S1-23, S1-24)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grete.config import aliases
from grete.config.key import PATH, ChangeClass, Key
from grete.config.key_tables import coordinator, streams
from grete.config.key_tables.task import CHECKPOINT_SYSTEM
from grete.config.keys import find_key
from grete.config.redact import is_secret_key, redact_value
from grete.config.settings import Settings
from grete.config.settings.job import JobSettings
from grete.config.settings.systems import EMBEDDED_SYSTEM

_UNKNOWN = ChangeClass.RESTART_CONTAINER
"""An application may read any key of its own, at any time after its container started."""


@dataclass(frozen=True, slots=True)
class Change:
    """One key's old and new value; None is absent, "" is a value."""

    key: str
    old: str | None
    new: str | None
    change_class: ChangeClass

    def __str__(self) -> str:
        shown = [
            "unset" if value is None else repr(redact_value(self.key, value))
            for value in (self.old, self.new)
        ]
        return f"{self.key}: {shown[0]} to {shown[1]} ({self.change_class})"


def diff(old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    """The changes from one configuration to another, sorted by key.

    A change that spells the same value differently (a default written out, Samza's class name for grete's, a
    deprecated name for today's) is LIVE: there is nothing to do about it.
    """
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return [Change(key, old.get(key), new.get(key), _class_of(key, old, new)) for key in keys]


def _class_of(key: str, old: Mapping[str, str], new: Mapping[str, str]) -> ChangeClass:
    known = find_key(key)
    if known is None:
        return _UNKNOWN
    if known is streams.STORE_FACTORY and (key in old) != (key in new):
        return ChangeClass.RESTART_CONTAINER  # a store comes or goes, also of the default kind
    if known.no_effect or effective(known, key, old) == effective(known, key, new):
        return ChangeClass.LIVE if known.change is not ChangeClass.INTERNAL else known.change
    return known.change


def effective(
    known: Key[object],
    key: str,
    config: Mapping[str, str],
    *,
    path: Callable[[str], str] = os.path.abspath,  # as it was written before such keys were made absolute
) -> str | None:
    """The value in force, in grete's spelling. For a family it is the key's own value, or the default."""
    if known is coordinator.SYSTEM:
        return config.get(key) or config.get("job.default.system") or _only_system(config)
    if known is streams.STORE_CHANGELOG:
        return _changelog(key.split(".")[1], config)
    names = [key] if known.is_family else known.all_names()
    value = next((config[name] for name in names if name in config), known.default)
    if value is None:
        return None
    if known.type.choices and known.type.problem(value) is None:
        return str(known.type.read(value))
    if known.type is PATH:
        return path(value)
    return aliases.canonical(known.aliases, value) if known.aliases else value


def _changelog(store: str, config: Mapping[str, str]) -> str:
    """`system.stream` of a store's changelog, whichever of the two is left out."""
    settings = Settings.of(config)
    named = config.get(f"stores.{store}.changelog", "")
    if "." in named:
        return named
    job = JobSettings(config).written_id
    system = settings.store(store).changelog_system or _only_system(config)
    return f"{system}.{settings.store(store).changelog_stream(job)}"


def _only_system(config: Mapping[str, str]) -> str | None:
    systems = Settings.of(config).system_names or [EMBEDDED_SYSTEM]
    return systems[0] if len(systems) == 1 else None


def refused_changes(
    old: Mapping[str, str], new: Mapping[str, str], *, stateful: bool | None = None
) -> list[str]:
    """Why the job may not change so: each set-once key with the reason and the way out; see `set_once_changes`."""
    return [refusal(change) for change in set_once_changes(old, new, stateful=stateful)]


def set_once_changes(
    old: Mapping[str, str], new: Mapping[str, str], *, stateful: bool | None = None
) -> list[Change]:
    """Changes of set-once keys on a stateful job (S1-23); on a stateless one of those that say where checkpoints are.

    `stateful` says whether the job has state; without it, a job with stores in the old configuration has. A whole
    store, system or stream may come and go; the embedded system is always there.
    """
    if not old:
        return []
    everything = Settings.of(old).is_stateful if stateful is None else stateful
    return [
        change
        for change in diff(old, new)
        if change.change_class is ChangeClass.SET_ONCE
        and not _is_whole(change.key, old, new)
        and (everything or _moves_checkpoints(change))
    ]


def _moves_checkpoints(change: Change) -> bool:
    """Whether a stateless job would not find its checkpoints; another grouper is judged by them."""
    if change.key == CHECKPOINT_SYSTEM.name:
        return bool(change.old and change.new)  # one alone is the default that is written out
    return find_key(change.key) in (streams.SYSTEM_FACTORY, streams.SYSTEM_PATH)


def set_once_part(config: Mapping[str, str]) -> dict[str, str]:
    """The keys that `set_once_changes` compares: the set-once ones, and those that their defaults come from.

    Comparing the parts of two configurations finds what comparing the configurations would. No credentials are in it.
    """
    return {key: value for key, value in config.items() if _is_compared(key)}


def _is_compared(key: str) -> bool:
    if is_secret_key(key):
        return False
    known = find_key(key)
    if key.startswith(("stores.", "streams.")) or key in ("job.default.system", "job.changelog.system"):
        return True  # any key of a store or a stream shows that it is there
    return known is not None and known.change is ChangeClass.SET_ONCE


def _is_whole(key: str, old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether the change belongs to a store, system or stream that comes or goes as a whole."""
    kind, name, *_ = [*key.split("."), ""]
    if kind not in ("stores", "systems", "streams") or (kind, name) == ("systems", EMBEDDED_SYSTEM):
        return False
    return not all(any(key.startswith(f"{kind}.{name}.") for key in config) for config in (old, new))


def refusal(change: Change) -> str:
    """Why a set-once key cannot change so, and the way out."""
    was, becomes = (
        "unset" if value is None else repr(redact_value(change.key, value))
        for value in (change.old, change.new)
    )
    return (
        f"{change.key} can not change from {was} to {becomes}: the job has state or checkpoints, and this key "
        f"decides which belong to which task, or where they are. Set it back, or give the job a new job.id to "
        f"start without"
    )
