"""Deleting what was read from a coordinator stream without deleting what others wrote meanwhile under the same keys.

A log has no compare-and-set, so a deletion may shadow a record that its writer has not read. The append that deletes
holds a record of grete's own with the offset up to which was read; what was shadowed is written again in the append
that removes this record. A process that dies between the two leaves it, and the next one does the second append.
"""

from __future__ import annotations

from collections.abc import Sequence

from grete.errors import WireError
from grete.failpoints import failpoint
from grete.keyed_log.base import Entry, Record
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.wire.coordinator_message import decode_key

DELETING = "grete-deleting"
_KEY = "startpoints"


def append_over(stream: CoordinatorStream, entries: Sequence[Entry], *, since: int) -> None:
    """Append the entries; what others wrote after the offset `since` under keys that these delete stays.

    Raises:
        Fenced: another coordinator has taken over.
    """
    types = sorted({decode_key(entry.key)[1] for entry in entries if entry.value is None})
    if not types:
        stream.append(entries)
        return
    values = {"since": str(since), "types": ",".join(types)}
    stream.append([*entries, stream.entry(DELETING, _KEY, values)])
    failpoint("change.startpoints-deleted")
    restore_shadowed(stream)


def restore_shadowed(stream: CoordinatorStream) -> None:
    """Write again what a deletion has shadowed whose process did not come to it; nothing without such a deletion."""
    message = stream.messages(DELETING).get(_KEY)
    if message is None:
        return
    values = message.values or {}
    since, types = values.get("since", ""), set(values.get("types", "").split(","))
    end = stream.entry(DELETING, _KEY, None)
    found = list(stream.log.read(int(since))) if since.lstrip("-").isdecimal() and since.isascii() else []
    deletion = next((one for one in reversed(found) if one.key == end.key and one.value is not None), None)
    by_key: dict[bytes, list[Record]] = {}
    for one in found:
        if _type(one.key) in types:
            by_key.setdefault(one.key, []).append(one)
    newer = [
        Entry(one.key, records[-2].value)
        for records in by_key.values()
        for one in records[-1:]
        if deletion is not None and len(records) > 1 and _belongs(one, deletion)
    ]
    stream.append([*(entry for entry in newer if entry.value is not None), end])


def _belongs(record: Record, deletion: Record) -> bool:
    """Whether it is a deletion of the same append: an operator's has no epoch, or comes later."""
    return record.value is None and record.epoch == deletion.epoch and record.offset < deletion.offset


def _type(key: bytes) -> str | None:
    try:
        return decode_key(key)[1]
    except WireError:
        return None
