"""The table of configuration keys and the look-up in it.

`docs/configuration.md` is made from this table by `python -m grete_workbench.documents.settings`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import cache

from grete.config.key import ChangeClass as ChangeClass
from grete.config.key import Key as Key
from grete.config.key import Type as Type
from grete.config.key_tables import (
    autosizing,
    azure,
    coordinator,
    deploy,
    eventhubs,
    job,
    kubernetes,
    outputs,
    samza,
    serdes,
    streams,
    task,
    zookeeper,
)
from grete.suggestions import nearest

_SECTIONS = (
    *("job", "task", "app", "cluster-manager", "systems"),
    *("streams", "stores", "serializers", "outputs"),
)
ALIKE = 0.88
"""How alike two names are, of 1, for one to be a slip of the other."""
SUBJECTS: tuple[tuple[str, tuple[Key[object], ...]], ...] = (
    ("The job", job.TABLE),
    ("The coordinator", coordinator.TABLE),
    ("The coordinator's election on ZooKeeper", zookeeper.TABLE),
    ("Autosizing", autosizing.TABLE),
    ("Deployments", deploy.TABLE),
    ("Tasks", task.TABLE),
    ("Systems, streams and stores", streams.TABLE),
    ("Serdes", serdes.TABLE),
    ("Outputs of a pipeline that are no streams", outputs.TABLE),
    ("Azure Event Hubs", eventhubs.TABLE),
    ("Leader election on Kubernetes", kubernetes.TABLE),
    ("Azure Storage", azure.TABLE),
    ("Samza's own", samza.TABLE),
)
KEYS: tuple[Key[object], ...] = tuple(key for _, table in SUBJECTS for key in table)


@cache
def _exact() -> dict[str, Key[object]]:
    plain = {key.name: key for key in KEYS if not key.is_family}
    old = {name: key for key in KEYS for name in key.renamed_from}
    return old | plain


@cache
def _families() -> dict[str, list[Key[object]]]:
    """Families by the first part of their names, closed ones before open ones."""
    found: dict[str, list[Key[object]]] = {}
    for key in sorted(KEYS, key=lambda key: key.is_open):
        if key.is_family:
            for first in {name.split(".")[0] for name in (key.name, *key.spellings)}:
                found.setdefault(first, []).append(key)
    return found


def find_key(name: str) -> Key[object] | None:
    """The table's row for a key, by its current or a deprecated name; None when it has none."""
    found = _exact().get(name)
    if found is not None:
        return found
    return next((key for key in _families().get(name.split(".")[0], ()) if _matches(key, name)), None)


def _matches(key: Key[object], name: str) -> bool:
    return bool(key.pattern.fullmatch(name)) or any(p.fullmatch(name) for p in key.other_patterns)


def candidates(name: str) -> Iterator[str]:
    """Known names that a misspelt one may have meant: families are filled with the name's own parts."""
    parts = name.split(".")
    yield from _exact()
    for key in _families().get(parts[0], ()):
        if not key.is_open:
            for pattern in (key.name, *key.spellings):
                filled = _filled(pattern.split("."), parts)
                if filled:
                    yield filled


def _filled(pattern: Sequence[str], parts: Sequence[str]) -> str:
    """The pattern with the parts where it has names; empty where these are too few, or where it ends in a name."""
    places = [at for at, part in enumerate(pattern) if part == "%s"]
    if not places or places[-1] == len(pattern) - 1 or places[-1] >= len(parts):
        return ""
    return ".".join(parts[at] if part == "%s" else part for at, part in enumerate(pattern))


def is_of_a_section(name: str) -> bool:
    """Whether a key stands in one of our sections, where each name is known."""
    return name.partition(".")[0] in _SECTIONS


def section_of(name: str) -> str | None:
    """The section of ours in which a key is, or nearly is; None of those that are people's own."""
    return _nearest_section(name.partition(".")[0])


@cache
def _nearest_section(first: str) -> str | None:
    return nearest(first, _SECTIONS, 0.75)


def nearest_key(name: str, config: Container[str] = (), cutoff: float = ALIKE) -> str | None:
    """The known key that a name nearly is: one part of it is left out or added, or some letters differ.

    A key that the configuration has is not what was meant, but where a name that no family takes is misspelt; such a
    name may be less alike, by `cutoff`.
    """
    first, dot, rest = name.partition(".")
    known = set(candidates(f"{section_of(name) or first}{dot}{rest}")) - {name}
    absent = {one for one in known if one not in config}
    by_parts = [one for one in absent if _is_a_part_away(name.split("."), one.split("."))]
    is_open = find_key(name) is not None
    return nearest(name, by_parts, 0) or (
        nearest(name, absent, ALIKE) if is_open else nearest(name, known, cutoff)
    )


def _is_a_part_away(one: Sequence[str], other: Sequence[str]) -> bool:
    short, long = sorted((one, other), key=len)
    return len(long) == len(short) + 1 and any(
        [*long[:at], *long[at + 1 :]] == list(short) for at in range(len(long))
    )
