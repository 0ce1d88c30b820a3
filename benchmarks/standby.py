"""How fast a lost store is back: from its changelog, a standby copy, a snapshot. `python -m benchmarks.standby`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack, unpack_changes
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.snapshot_places import FolderPlace
from grete.tasks.stores.snapshots import snapshot_copies, take
from grete.tasks.stores.warm_copy import standby_copies, take_over

KEYS = 1_000_000
BEHIND = 10_000
"""Changes that the copy has not seen when the store is lost: more than half a second of a busy task."""
VALUE_BYTES = 100
_CHUNK = 50_000


def run(keys: int = KEYS) -> dict[str, float]:
    """Seconds for a store of `keys` keys, the changelog's MB/s, and how much sooner the copy is there."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        system = LocalSystem(directory / "local", SystemClock())
        system.create_stream(StreamSpec("changes", 1, compacted=True))
        for first in range(0, keys + BEHIND, _CHUNK):
            segment = _segment(first, min(_CHUNK, keys + BEHIND - first), keys)
            system.commit(CommitGroup([], [segment], "", []))

        def settle(file: StoreFile, end: int) -> None:
            file.settle(end, "", lambda a, b: system.changes("changes", 0, a, b), unpack_changes)

        copy = directory / "standby" / "store.db"
        standby = StoreFile(copy, "changelog")
        settle(standby, keys)

        begun = time.perf_counter()
        cold = StoreFile(directory / "cold" / "store.db", "changelog")
        settle(cold, keys + BEHIND)
        cold_s = time.perf_counter() - begun

        lost = directory / "taken" / "store.db"
        begun = time.perf_counter()
        copies = standby_copies([copy], "changelog")
        taken = StoreFile(lost, "changelog", refill=lambda: take_over(lost, copies))
        settle(taken, keys + BEHIND)
        warm_s = time.perf_counter() - begun

        folder = FolderPlace(directory / "snapshots")
        begun = time.perf_counter()
        whole = take(copy, folder, "changelog")
        first_s = time.perf_counter() - begun
        moved = directory / "moved" / "store.db"
        begun = time.perf_counter()
        found = StoreFile(
            moved, "changelog", refill=lambda: take_over(moved, snapshot_copies(folder, "changelog"))
        )
        settle(found, keys + BEHIND)
        snapshot_s = time.perf_counter() - begun
        begun = time.perf_counter()
        more = take(moved, folder, "changelog")
        next_s = time.perf_counter() - begun

        assert list(taken.scan(b"0", b"01")) == list(cold.scan(b"0", b"01"))
        size = (directory / "local" / "streams.db").stat().st_size
        assert list(found.scan(b"0", b"01")) == list(cold.scan(b"0", b"01"))
        for file in (standby, cold, taken, found):
            file.close()
        system.close()
    return {
        "keys": keys,
        "changelog_mb": round(size / 1e6, 1),
        "cold_restore_s": round(cold_s, 2),
        "cold_restore_mb_per_s": round(size / 1e6 / cold_s, 1),
        "take_over_s": round(warm_s, 2),
        "take_over_to_cold_restore": round(warm_s / cold_s, 3),
        "snapshot_restore_s": round(snapshot_s, 2),
        "snapshot_restore_to_cold_restore": round(snapshot_s / cold_s, 3),
        "first_snapshot_s": round(first_s, 2),
        "first_snapshot_mb": round(whole / 1e6, 1),
        "next_snapshot_s": round(next_s, 2),
        "next_snapshot_mb": round(more / 1e6, 1),
    }


def _segment(first: int, count: int, keys: int) -> SegmentWrite:
    records = list(_records(first, count, keys))
    data = pack([key for key, _ in records], [value for _, value in records], [first] * count)
    return SegmentWrite("changes", 0, count, data)


def _records(first: int, count: int, keys: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(first, first + count):
        yield b"%010d" % (number * 7919 % keys), b"%0*d" % (VALUE_BYTES, number)


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else KEYS), indent=2))
