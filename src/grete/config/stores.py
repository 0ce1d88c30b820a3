"""The stores a configuration declares, and the changelog stream behind each."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from grete.config.java_values import parse_boolean
from grete.config.key import Key
from grete.config.key_tables.task import STATE_RESTORE, STATE_RETAIN
from grete.model.ids import JobId, SystemStream

_SETTINGS_OF_ALL = ("stores.default.", "stores.backup.factories", "stores.restore.factories")
"""Samza's settings for all stores: they look like stores of these names, and are none."""
_WRITTEN = (
    "task.outputs",
    "task.poison.dead-letter.stream",
    "metrics.reporter.diagnosticsreporter.stream",
)
_INTERNAL = "__"
_COMPACTION_LAG_MS = 4 * 3600 * 1000


def store_names(config: Mapping[str, str]) -> list[str]:
    """Every store that `stores.<name>.*` configures, sorted. A name holds no dot."""
    return sorted(
        {
            key.split(".")[1]
            for key in config
            if key.startswith("stores.") and key.count(".") >= 2 and not key.startswith(_SETTINGS_OF_ALL)
        }
    )


def changelog_stream(store: str, job: JobId, config: Mapping[str, str]) -> str:
    """The stream behind a store: `stores.<name>.changelog`, or `<job>-<id>-<store>-changelog`."""
    named = config.get(f"stores.{store}.changelog")
    if not named:
        return f"{job}-{store}-changelog"
    return SystemStream.parse(named).stream if "." in named else named


def may_be_chosen(name: str, pattern: re.Pattern[str], own: Collection[str]) -> bool:
    """Whether a pattern for inputs chooses the stream; `own` are the job's (`own_streams`), which it never does.

    Streams whose names begin with two underscores hold what jobs remember (coordinator streams, checkpoints, fences):
    a pattern chooses them only when it begins so as well.
    """
    is_internal = name.startswith(_INTERNAL) and not pattern.pattern.startswith(_INTERNAL)
    return name not in own and not is_internal and pattern.fullmatch(name) is not None


def own_streams(config: Mapping[str, str], system: str) -> set[str]:
    """The streams of a system that the job is known to write itself: changelogs, outputs, dead letters, diagnostics.

    A pattern that chooses inputs must not choose these: the job would read what it writes, without end.
    """
    job = JobId(config.get("job.name", ""), config.get("job.id", "1"))
    changelogs = {
        changelog_stream(store, job, config)
        for store in store_names(config)
        if changelog_system(store, config) in (None, system)
    }
    written = [name.strip() for key in _WRITTEN for name in config.get(key, "").split(",")]
    return changelogs | {n.removeprefix(f"{system}.") for n in written if n.startswith(f"{system}.")}


def changelog_system(store: str, config: Mapping[str, str]) -> str | None:
    """The system of a store's changelog: the one it names, else Samza's defaults; None when nothing says."""
    named = config.get(f"stores.{store}.changelog", "")
    if "." in named:
        return named.partition(".")[0]
    return config.get("job.changelog.system") or config.get("job.default.system")


def compaction_lag_ms(store: str, config: Mapping[str, str]) -> int:
    """How old a change must be before compaction may drop it (Samza's StorageConfig)."""
    for scope in (store, "default"):
        text = config.get(f"stores.{scope}.changelog.min.compaction.lag.ms")
        if text is not None:
            return int(text)
    return _COMPACTION_LAG_MS


@dataclass(frozen=True, slots=True)
class TransactionalState:
    """How stores of a job that comes from Samza are restored, as its TaskConfig says.

    `restores`: to where the checkpoint says, not to the changelog's end. `retains_existing`: a changelog that the
    checkpoint says nothing of is taken as it is, else emptied.
    """

    restores: bool
    retains_existing: bool


def transactional_state(config: Mapping[str, str]) -> TransactionalState:
    """Both are true when not set, as in Samza."""

    def is_on(key: Key[bool]) -> bool:
        return parse_boolean(config.get(key.name, key.default or ""))

    return TransactionalState(restores=is_on(STATE_RESTORE), retains_existing=is_on(STATE_RETAIN))
