"""The table of configuration keys and the look-up in it.

`docs/configuration.md` is made from this table by `python -m grete.config.document`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from grete.config.key import ChangeClass as ChangeClass
from grete.config.key import Key as Key
from grete.config.key import Type as Type
from grete.config.key_tables import (
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

SUBJECTS: tuple[tuple[str, tuple[Key[object], ...]], ...] = (
    ("The job", job.TABLE),
    ("The coordinator", coordinator.TABLE),
    ("The coordinator's election on ZooKeeper", zookeeper.TABLE),
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
    """Known names that a misspelt one may have meant: families are filled with the name's own second part."""
    first, _, rest = name.partition(".")
    middle = rest.partition(".")[0]
    yield from _exact()
    for key in _families().get(first, ()):
        if not key.is_open and key.name.count("%s") == 1 and middle:
            yield key.named(middle)
