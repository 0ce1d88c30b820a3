"""Snapshots of a task's store in a folder that all machines see: what restores a store faster than its changelog.

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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from grete.errors import GreteError
from grete.failpoints import failpoint
from grete.private_files import private_directory, private_opener, replace_file
from grete.tasks.stores.looking import position_of
from grete.tasks.stores.warm_copy import Copy, copied

_log = logging.getLogger("grete.stores")
_BLOCK_BYTES = 1 << 20
_KEPT = 2
"""The newest ones: where a block of one is damaged there is another."""
_BLOCKS, _MANIFEST, _COPY = "blocks", ".json", ".snapshot"
_STAYS_S = 3600.0
"""A block of no snapshot stays so long after it was written or counted on."""


class DamagedSnapshot(GreteError):
    """A block or a manifest is not what was written."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One that is there, as its manifest says."""

    folder: Path
    changelog: str
    position: int
    blocks: tuple[str, ...]

    def is_whole(self) -> bool:
        """Whether all of its blocks are there; what is in them is seen when they are read."""
        return all((self.folder / _BLOCKS / name).exists() for name in self.blocks)

    def write_to(self, path: Path) -> None:
        """Make the file of it.

        Raises:
            DamagedSnapshot: a block is missing or damaged.
            OSError: there is no room.
        """
        with open(path, "wb", opener=private_opener) as file:
            for name in self.blocks:
                file.write(self._block(name))

    def _block(self, name: str) -> bytes:
        try:
            content = (self.folder / _BLOCKS / name).read_bytes()
        except FileNotFoundError as error:
            raise DamagedSnapshot(f"block {name} of {self.folder} is not there") from error
        if _name(content) != name:
            raise DamagedSnapshot(f"block {name} of {self.folder} is damaged")
        return content


def snapshots(folder: Path, changelog: str) -> list[Snapshot]:
    """Those of this very changelog, the furthest first. What is no manifest, or a damaged one, is none."""
    found = (_read(path) for path in folder.glob(f"*{_MANIFEST}"))
    ours = (one for one in found if one is not None and one.changelog == changelog)
    return sorted(ours, key=lambda one: one.position, reverse=True)


def snapshot_copies(folder: Path, changelog: str) -> list[Copy]:
    """The same, as copies that a store can be taken over from."""
    found = snapshots(folder, changelog)
    return [Copy(one.position, f"the snapshot in {folder}", one.write_to) for one in found]


def _read(path: Path) -> Snapshot | None:
    try:
        document = orjson.loads(path.read_bytes())
        one = Snapshot(path.parent, document["changelog"], document["position"], tuple(document["blocks"]))
        return one if document["digest"] == _digest(one) else None
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None


def _digest(one: Snapshot) -> str:
    return _name("\n".join([one.changelog, str(one.position), *one.blocks]).encode())


def _name(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def take(store: Path, folder: Path, changelog: str) -> int:
    """Write a snapshot of a store's file, and remove older ones; returns how many bytes were written.

    Nothing where the newest one is at the same offset. The file may be in use.

    Raises:
        OSError: there is no room, or the folder cannot be written. Older snapshots stay.
        apsw.Error: the file cannot be read.
    """
    there = [one for one in snapshots(folder, changelog) if one.is_whole()]
    if position_of(store, changelog) <= (there[0].position if there else 0):
        return 0
    private_directory(folder / _BLOCKS)
    copy = store.with_name(f"{store.name}.{secrets.token_hex(4)}{_COPY}")
    try:
        copied(store, copy)
        position, (written, names) = position_of(copy, changelog), _write_blocks(copy, folder / _BLOCKS)
    finally:
        copy.unlink(missing_ok=True)
    failpoint("snapshot.blocks-written")
    one = Snapshot(folder, changelog, position, names)
    manifest = {"changelog": changelog, "position": position, "blocks": names, "digest": _digest(one)}
    replace_file(folder / f"{position:020d}{_MANIFEST}", orjson.dumps(manifest), is_durable=True)
    failpoint("snapshot.written")
    old_s = folder.stat().st_mtime - _STAYS_S  # by the clock of the folder: machines may differ
    _remove_others(folder, [one, *there][:_KEPT], old_s)
    for left in store.parent.glob(f"{store.name}.*{_COPY}"):  # of a process that was killed
        if left.stat().st_mtime < old_s:
            left.unlink(missing_ok=True)
    return written


def _write_blocks(copy: Path, folder: Path) -> tuple[int, tuple[str, ...]]:
    """Write those that are not there; returns how many bytes that were, and the names of all."""
    written, names = 0, list[str]()
    for block in _blocks_of(copy):
        names.append(_name(block))
        try:
            os.utime(folder / names[-1])  # who removes old ones leaves it
        except FileNotFoundError:
            replace_file(folder / names[-1], block, is_durable=True)
            written += len(block)
    return written, tuple(names)


def _blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _remove_others(folder: Path, kept: list[Snapshot], old_s: float) -> None:
    """Manifests, and old blocks: a new one may be of a snapshot that another process is about to finish."""
    manifests = {f"{one.position:020d}{_MANIFEST}" for one in kept}
    for path in folder.glob(f"*{_MANIFEST}"):
        if path.name not in manifests:
            path.unlink(missing_ok=True)
    used = {name for one in kept for name in one.blocks}
    for path in (folder / _BLOCKS).iterdir():
        if path.name not in used:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < old_s:
                    path.unlink()


def _newest_ms(folder: Path) -> int:
    written = [0.0]
    with suppress(OSError):
        written += [path.stat().st_mtime for path in folder.glob(f"*{_MANIFEST}")]
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
        self, store: Path, changelog: str, folder: Path, interval_ms: int, now_ms: Callable[[], int]
    ) -> None:
        """The first is due after a part of the interval, another one for each store, so that not all are at once."""
        self._store = store
        self._changelog = changelog
        self._folder = folder
        self._interval_ms = interval_ms
        self._now_ms = now_ms
        self._due_ms = now_ms() + zlib.crc32(bytes(folder)) % interval_ms
        self._is_free = threading.Event()
        self._is_free.set()
        self.good_ms = _newest_ms(folder)
        """The wall clock's time at which the store was as the newest snapshot has it; 0 without one."""

    def look(self) -> None:
        """Begin one if it is due. Takes no time."""
        if self._now_ms() >= self._due_ms and self._is_free.is_set():
            self._due_ms = self._now_ms() + self._interval_ms
            self._is_free.clear()
            _WRITER.soon(self._take)

    def _take(self) -> None:
        store, folder, began_ms = self._store, self._folder, self._now_ms()
        try:
            written = take(store, folder, self._changelog)
            self.good_ms = began_ms
            _log.info("snapshot of %s in %s: %d new bytes", store, folder, written)
        except Exception as error:  # noqa: BLE001 - a thread begins here, and all stores of the process wait for it
            _log.warning("no snapshot of %s in %s, until the next one is due: %s", store, folder, error)
        finally:
            self._is_free.set()
