"""Snapshots of a task's store where all machines see them: what restores a store faster than its changelog.

A snapshot is a copy of the store's file, cut into blocks that are named by their content. A block that is there is
not written again, so a snapshot costs what has changed. A manifest names the blocks in their order, and the offset of
the changelog at which the file stood. It is written last: what is half there has no manifest, and every block is
compared with its name when it is read, so that damage is noticed. A snapshot is a proven prefix of the changelog, as
a standby's copy is, and the task reads the rest.
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import secrets
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import orjson

from grete.errors import GreteError
from grete.failpoints import failpoint
from grete.private_files import private_opener
from grete.tasks.stores.looking import position_of
from grete.tasks.stores.snapshot_places import SnapshotPlace
from grete.tasks.stores.warm_copy import Copy, copied

_log = logging.getLogger("grete.stores")
_BLOCK_BYTES = 1 << 20
_KEPT = 2
"""The newest ones: where a block of one is damaged there is another."""
_AT_ONCE = 16
"""Blocks that are read side by side: an object store answers after 20 ms or so, and gives each its own time."""
_BLOCKS, _MANIFEST, _COPY = "blocks", ".json", ".snapshot"
_STAYS_S = 3600.0
"""A block of no snapshot stays so long after it was written or counted on."""


class DamagedSnapshot(GreteError):
    """A block or a manifest is not what was written."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One that is there, as its manifest says."""

    place: SnapshotPlace
    changelog: str
    position: int
    blocks: tuple[str, ...]

    @property
    def file(self) -> str:
        """The name of its manifest."""
        return f"{self.position:020d}{_MANIFEST}"

    def write_to(self, path: Path) -> None:
        """Make the file of it.

        Raises:
            DamagedSnapshot: a block is missing or damaged.
            OSError: there is no room, or the place does not answer.
        """
        blocks = iter(self.blocks)
        with open(path, "wb", opener=private_opener) as file, ThreadPoolExecutor(_AT_ONCE) as readers:
            while names := list(islice(blocks, _AT_ONCE)):
                for content in readers.map(self._block, names):
                    file.write(content)

    def _block(self, name: str) -> bytes:
        blocks = self.place.below(_BLOCKS)
        try:
            content = blocks.read(name)
        except FileNotFoundError as error:
            raise DamagedSnapshot(f"block {name} of {self.place} is not there") from error
        if _name(content) != name:
            with suppress(OSError):  # the next snapshot writes it again, and does not count on it
                blocks.remove(name)
            raise DamagedSnapshot(f"block {name} of {self.place} is damaged")
        return content


def snapshots(place: SnapshotPlace, changelog: str) -> list[Snapshot]:
    """Those of this very changelog, the furthest first. What is no manifest, or a damaged one, is none.

    Raises:
        OSError: the place does not answer.
    """
    found = (_read(place, name) for name in place.files() if name.endswith(_MANIFEST))
    ours = (one for one in found if one is not None and one.changelog == changelog)
    return sorted(ours, key=lambda one: one.position, reverse=True)


def snapshot_copies(place: SnapshotPlace, changelog: str) -> list[Copy]:
    """The same, as copies that a store can be taken over from; none where the place does not answer."""
    try:
        found = snapshots(place, changelog)
    except OSError as error:
        _log.warning("no snapshots of %s can be seen, so a changelog is read instead: %s", place, error)
        return []
    return [Copy(one.position, f"the snapshot in {place}", one.write_to) for one in found]


def _read(place: SnapshotPlace, name: str) -> Snapshot | None:
    try:
        document = orjson.loads(place.read(name))
        one = Snapshot(place, document["changelog"], document["position"], tuple(document["blocks"]))
        return one if document["digest"] == _digest(one) else None
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None


def _digest(one: Snapshot) -> str:
    return _name("\n".join([one.changelog, str(one.position), *one.blocks]).encode())


def _name(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def take(store: Path, place: SnapshotPlace, changelog: str) -> int:
    """Write a snapshot of a store's file, and remove older ones; returns how many bytes were written.

    Nothing where the newest one is at the same offset. The file may be in use.

    Raises:
        OSError: there is no room, or the place cannot be written. Older snapshots stay.
        apsw.Error: the file cannot be read.
    """
    blocks = place.below(_BLOCKS)
    present = blocks.files()
    there = [one for one in snapshots(place, changelog) if present.keys() >= set(one.blocks)]
    if position_of(store, changelog) <= (there[0].position if there else 0):
        return 0
    copy = store.with_name(f"{store.name}.{secrets.token_hex(4)}{_COPY}")
    counted_on = {name for one in there[:_KEPT] for name in one.blocks}
    try:
        copied(store, copy)
        position, (written, names) = position_of(copy, changelog), _write_blocks(copy, blocks, counted_on)
    finally:
        copy.unlink(missing_ok=True)
    failpoint("snapshot.blocks-written")
    one = Snapshot(place, changelog, position, names)
    manifest = {"changelog": changelog, "position": position, "blocks": names, "digest": _digest(one)}
    place.write(one.file, orjson.dumps(manifest))
    failpoint("snapshot.written")
    _remove_others(place, [one, *there][:_KEPT])
    for left in store.parent.glob(f"{store.name}.*{_COPY}"):  # of a process that was killed
        if left.stat().st_mtime < store.stat().st_mtime - _STAYS_S:
            left.unlink(missing_ok=True)
    return written


def _write_blocks(copy: Path, place: SnapshotPlace, there: set[str]) -> tuple[int, tuple[str, ...]]:
    """Write those that no snapshot counts on; returns how many bytes that were, and the names of all.

    One that is there and of no snapshot is written again: who removes old ones then leaves it.
    """
    written, names, blocks = 0, list[str](), _blocks_of(copy)
    with ThreadPoolExecutor(place.written_at_once) as writers:
        while some := list(islice(blocks, place.written_at_once)):
            named = list(zip(map(_name, some), some, strict=True))
            names += (name for name, _ in named)
            new = {name: block for name, block in named if name not in there}
            list(writers.map(place.write, new.keys(), new.values()))
            there |= new.keys()
            written += sum(map(len, new.values()))
    return written, tuple(names)


def _blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _remove_others(place: SnapshotPlace, kept: list[Snapshot]) -> None:
    """Manifests, and old blocks: a new one may be of a snapshot that another process is about to finish."""
    manifests = {name: when_s for name, when_s in place.files().items() if name.endswith(_MANIFEST)}
    for name in manifests.keys() - {one.file for one in kept}:
        place.remove(name)
    used, blocks = {name for one in kept for name in one.blocks}, place.below(_BLOCKS)
    old_s = max(manifests.values(), default=0.0) - _STAYS_S
    for name, when_s in blocks.files().items():
        if name not in used and when_s < old_s:
            blocks.remove(name)


def _newest_ms(place: SnapshotPlace) -> int:
    written = [0.0]
    with suppress(OSError):
        written += [when_s for name, when_s in place.files().items() if name.endswith(_MANIFEST)]
    return int(max(written) * 1000)


class _Writer:
    """A thread for all stores of a process: a thousand at once on one disk would hold up one another, and commits.

    The process does not wait for it when it ends: what it has begun is no snapshot, and the next one does it again.
    """

    def __init__(self) -> None:
        self._waiting = queue.SimpleQueue[Callable[[], None]]()
        self._of = 0

    def soon(self, work: Callable[[], None]) -> None:
        """Do it after what came before."""
        if self._of != os.getpid():  # threads do not come along when a worker is forked
            self._of = os.getpid()
            threading.Thread(target=self._run, name="grete-snapshots", daemon=True).start()
        self._waiting.put(work)

    def _run(self) -> None:
        while True:
            self._waiting.get()()


_WRITER = _Writer()


class SnapshotTaker:
    """Takes snapshots of one store, in a thread beside the task, every `interval_ms`.

    What fails is logged and tried again when the next is due: a task that has no snapshot has its changelog.
    """

    def __init__(
        self, store: Path, changelog: str, place: SnapshotPlace, interval_ms: int, now_ms: Callable[[], int]
    ) -> None:
        """The first is due after a part of the interval, another one for each store, so that not all are at once."""
        self._store = store
        self._changelog = changelog
        self._place = place
        self._interval_ms = interval_ms
        self._now_ms = now_ms
        self._due_ms = now_ms() + zlib.crc32(str(place).encode()) % interval_ms
        self._is_free = threading.Event()
        self._is_free.set()
        self.good_ms = 0
        """The wall clock's time at which the store was as the newest snapshot has it; 0 while none is known."""
        _WRITER.soon(self._look_back)

    def look(self) -> None:
        """Begin one if it is due. Takes no time."""
        if self._now_ms() >= self._due_ms and self._is_free.is_set():
            self._due_ms = self._now_ms() + self._interval_ms
            self._is_free.clear()
            _WRITER.soon(self._take)

    def _look_back(self) -> None:
        """Beside the task: an object store answers after 20 ms or so, and a thousand tasks may begin at once."""
        self.good_ms = max(self.good_ms, _newest_ms(self._place))

    def _take(self) -> None:
        store, place, began_ms = self._store, self._place, self._now_ms()
        try:
            written = take(store, place, self._changelog)
            self.good_ms = began_ms
            _log.info("snapshot of %s in %s: %d new bytes", store, place, written)
        except Exception as error:  # noqa: BLE001 - a thread begins here, and all stores of the process wait for it
            _log.warning("no snapshot of %s in %s, until the next one is due: %s", store, place, error)
        finally:
            self._is_free.set()
