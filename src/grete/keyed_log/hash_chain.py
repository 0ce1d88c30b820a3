"""The hash chain of a keyed log: each record's hash covers the one before, so nothing goes missing unseen.

    chain(-1) = genesis(name, lineage)
    chain(n)  = sha256(chain(n-1), offset, timestamp, epoch, append id, key, value of record n)

Compaction replaces a run of dropped records first..last by one *stub* that keeps chain(last) and a seal:

    seal = sha256(chain(first-1), first, last, chain(last))

Why the chain still proves what is there. Take two neighbours in a compacted log. A record n that follows a record
or stub ending at n-1 is recomputed from chain(n-1), its content and its place: any change to either shows. A stub
is recomputed from chain(first-1): its bounds and its end of the chain cannot change, so no living record can
disappear into it and no stub can be moved. By induction from the genesis every offset up to the end is accounted
for: as a record that is what was appended, or as part of a run that a compaction dropped. Whether a dropped record
was really shadowed is not provable afterwards; compaction reads the whole chain before it drops anything.
"""

from __future__ import annotations

import hashlib
import struct

_HEAD = struct.Struct(">qqqIII")
_pack, _sha256 = _HEAD.pack, hashlib.sha256  # looked up a million times in a bootstrap
_STUB = struct.Struct(">32sqq32s")
_NONE = 0xFFFFFFFF
_NO_EPOCH = -1


def genesis(name: str, lineage: str) -> bytes:
    """The chain before the first record: differs between logs, and between a log and one recreated in its place."""
    return hashlib.sha256(f"grete keyed log 1\n{lineage}\n{name}".encode()).digest()


def link(
    previous: bytes,
    offset: int,
    key: bytes,
    value: bytes | None,
    timestamp_ms: int,
    epoch: int | None,
    append_id: bytes | None,
) -> bytes:
    """The chain after a record. A tombstone and an empty value differ; lengths keep neighbours apart."""
    head = _pack(
        offset,
        timestamp_ms,
        _NO_EPOCH if epoch is None else epoch,
        _NONE if append_id is None else len(append_id),
        len(key),
        _NONE if value is None else len(value),
    )
    return _sha256(b"".join((previous, head, append_id or b"", key, value or b""))).digest()


def seal(previous: bytes, first: int, last: int, chain: bytes) -> bytes:
    """The payload of a stub for the dropped offsets first..last."""
    return hashlib.sha256(_STUB.pack(previous, first, last, chain)).digest()
