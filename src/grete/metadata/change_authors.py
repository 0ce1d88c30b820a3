"""Authors and reasons of changed keys, for the rows of the history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grete.metadata.coordinator_stream import GENERATION, CoordinatorStream
from grete.metadata.history import History
from grete.model.messages import SET_CONFIG, CoordinatorMessage, MessageOrigin

_NAMED = 10
"""Keys that a row names; the others are counted, and `grete config history` has them all."""
_TAKEN_UP = ("deployment", "attempt", "change", "reconfigured")
"""Rows that say that a configuration is the one in force."""


def described(stream: CoordinatorStream, keys: Sequence[str]) -> dict[str, str]:
    """`keys`, `who` and `reason` of a change of these keys, as far as the stream has them; empty without keys.

    A deleted key has no author of its own: it is taken to be deleted by the author of the last generation.
    """
    if not keys:
        return {}
    generation = stream.messages(GENERATION).get("current")
    written = stream.messages(SET_CONFIG)
    origins = [written[key].origin if key in written else _origin(generation) for key in keys]
    ours = _origin(generation)
    is_ours = any(_are_by_one(origin, ours) for origin in origins)
    names = dict.fromkeys(_name(one, generation) for one in origins if one is not None)
    reason = (generation.values or {}).get("reason", "") if generation is not None and is_ours else ""
    return {"keys": _listed(keys), "who": ", ".join(names), "reason": reason}


def changed_since_the_last_start(stream: CoordinatorStream) -> list[str]:
    """The keys that were written since the job last took up a configuration; none when it never has."""
    taken_up = [row.timestamp_ms for row in History(stream).rows() if row.event in _TAKEN_UP]
    if not taken_up:
        return []
    return sorted(
        key
        for key, message in stream.messages(SET_CONFIG).items()
        if message.origin is not None and message.origin.timestamp_ms > taken_up[-1]
    )


def _origin(generation: CoordinatorMessage | None) -> MessageOrigin | None:
    return None if generation is None else generation.origin


def _are_by_one(one: MessageOrigin | None, other: MessageOrigin | None) -> bool:
    if one is None or other is None:
        return False
    return (one.source, one.host, one.username) == (other.source, other.host, other.username)


def _name(origin: MessageOrigin, generation: CoordinatorMessage | None) -> str:
    """`user@host (program)`; a generation of ours has its host's name, a record only an address."""
    host = origin.host
    if generation is not None and _are_by_one(origin, generation.origin):
        host = (generation.values or {}).get("hostname", host)
    return f"{origin.username}@{host} ({origin.source})"


def _listed(keys: Iterable[str]) -> str:
    named = sorted(keys)
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more
