"""Lineages in a place: `lineages/<id>/spark/` and which one is current.

On a disk the whole directory belongs to one container at a time, held by a file lock that dies with its process. A
container whose predecessor still lives (it is stopping, or paused) does not touch that one's Spark checkpoint: it
starts a new lineage, and the predecessor's next commit is fenced. On a file system of Hadoop's: `lineages_on_hadoop`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

import orjson

from grete.errors import JobError, WireError
from grete.failpoints import failpoint
from grete.model.ids import SystemStreamPartition
from grete.private_files import replace_file
from grete.spark.lineage.decision import FIRST_FOLDER, LineageInfo
from grete.spark.lineage.location import Location, WritableLocation
from grete.spark.lineage.offset_log import SparkProgress, read_progress, record_up_to
from grete.spark.lineage.parted_sources import Parts
from grete.spark.lineage.query_files import copy_all
from grete.spark.lineage.source_log import SparkLogUnreadable, batches, read_planned, record_after

CURRENT = "current.json"
_KEPT = 3
"""Lineages kept for looking at; older ones are deleted when a new one starts."""


class Lineages(ABC):
    """The lineages of one container of one job."""

    def __init__(self, place: WritableLocation, topics: Mapping[str, str] = MappingProxyType({})) -> None:
        """`topics`: see `offset_log.read_batch_end`."""
        self._place = place
        self._topics = topics

    def current(self) -> LineageInfo | None:
        """See `current_lineage`."""
        return current_lineage(self._place)

    @abstractmethod
    def lock(self, lineage: LineageInfo) -> bool:
        """Take the lineage for this process; False when another living process has it."""

    def spark_checkpoint(self, lineage: LineageInfo) -> WritableLocation:
        """Spark's checkpoint location of a lineage; its text is what Spark takes."""
        return self._place / lineage.id / lineage.folder

    def progress(self, lineage: LineageInfo) -> SparkProgress | str | None:
        """Where Spark stands in it; None when its directory is gone, a text when its logs are unreadable."""
        checkpoint = self.spark_checkpoint(lineage)
        if not checkpoint.is_dir():
            return None
        try:
            return read_progress(checkpoint, lineage.sources, self._topics)
        except SparkLogUnreadable as error:
            return str(error)

    def is_open(self, lineage: LineageInfo) -> bool:
        """Whether Spark has begun a batch and not noted its end.

        Raises:
            SparkLogUnreadable: see `read_progress`.
        """
        progress = read_progress(self.spark_checkpoint(lineage), lineage.sources, self._topics)
        return progress.planned > progress.committed

    def planned_settings(self, lineage: LineageInfo) -> Mapping[str, str]:
        """Spark's settings as of the batch that it has planned last; empty before there is one."""
        checkpoint = self.spark_checkpoint(lineage)
        known = batches(checkpoint / "offsets")
        return read_planned(checkpoint, known[-1]).settings if known else {}

    def plan_up_to(self, lineage: LineageInfo, ends: Mapping[str, int], now_ms: int) -> bool:
        """Plan the next batch up to these next offsets, in Spark's place; returns whether there is one to run.

        A batch that Spark has planned is left as it is, wherever it ends: its rows may be in outputs. Durable on
        return.

        Raises:
            JobError: no batch of the lineage was planned yet, so that it is not known how Spark would write one.
            SparkLogUnreadable: see `read_progress`.
        """
        checkpoint = self.spark_checkpoint(lineage)
        progress = read_progress(checkpoint, lineage.sources, self._topics)
        if progress.planned > progress.committed:
            return True
        if progress.planned < 0:
            if all(ends.get(ssp, offset) <= offset for ssp, offset in lineage.starting_offsets.items()):
                return False
            raise JobError(
                f"lineage {lineage.id} has no batch yet, after which one could end where it has to: run the job once"
            )
        own = {
            ssp: ends[ssp] for ssp in lineage.starting_offsets if ssp in ends
        }  # not those of other containers
        record = record_up_to(checkpoint, progress.planned, lineage.sources, self._topics, own, now_ms)
        if record is None:
            return False
        self._write(_record(lineage, progress.planned + 1), record)
        failpoint("lineage.planned")
        return True

    def start(
        self,
        described: LineageInfo,
        *,
        taken_over: Location | None = None,
        until: int | None = None,
        parts: Parts | None = None,
    ) -> LineageInfo:
        """Begin a new lineage, which gets its id here, and make it the current one. Durable on return.

        `taken_over` is a query's checkpoint location, a copy of which it goes on from; the others as in `copy_all`.

        Raises:
            OSError: there is no room for the copy; nothing of it is left.
            SparkLogUnreadable: with `parts`, a record of the query is damaged; nothing is left either.
        """
        lineage = replace(described, id=uuid.uuid4().hex, folder=FIRST_FOLDER)
        locked = self.lock(lineage)
        assert locked, "a lineage that no other process knows of is locked"
        self._make(lineage)
        if taken_over is not None:
            try:
                copy_all(taken_over, self.spark_checkpoint(lineage), until=until, parts=parts)
            except (OSError, SparkLogUnreadable):
                self._remove(lineage.id)
                raise
        failpoint("lineage.locked")
        self._write(CURRENT, orjson.dumps(asdict(lineage)))
        failpoint("lineage.current")
        self._prune(keep=lineage.id)
        return lineage

    def widen(self, lineage: LineageInfo, parts: Parts, now_ms: int) -> LineageInfo:
        """Let the current lineage go on with sources that came, under this description. Durable on return.

        Raises:
            OSError: there is no room for a copy; nothing of it is left.
            SparkLogUnreadable: see `read_progress`.
        """
        return self._changed(lineage, now_ms, parts=parts)

    def repartition(self, lineage: LineageInfo, move: Callable[[str], None], now_ms: int) -> LineageInfo:
        """Let the current lineage go on with its state in other partitions. Durable on return.

        `move` is called with a location, and leaves one batch more in it, which is committed and reads nothing. No
        batch may have been begun.

        Raises:
            OSError: there is no room for a copy; nothing of it is left.
            JobError: `move` did not do it.
            Exception: what `move` raises.
        """
        committed = read_progress(self.spark_checkpoint(lineage), lineage.sources, self._topics).committed
        silent = replace(lineage, silent=committed + 1)

        def moved(place: WritableLocation) -> None:
            move(str(place))
            if isinstance(place, Path):
                os.sync()  # Spark syncs no file
            after = read_progress(place, lineage.sources, self._topics)
            if (after.planned, after.committed) != (silent.silent, silent.silent):
                raise JobError(
                    f"{place}: batch {after.committed} is the last one, and {silent.silent} was to be"
                )

        return self._changed(silent, now_ms, until=committed, change=moved)

    def _changed(
        self,
        lineage: LineageInfo,
        now_ms: int,
        *,
        parts: Parts | None = None,
        until: int | None = None,
        change: Callable[[WritableLocation], None] = lambda place: None,
    ) -> LineageInfo:
        """Put a changed copy of Spark's checkpoint location in the place of the current lineage's.

        Until then the lineage is as it was, and so it is where this fails. A predecessor that still lives, as one
        that was paused, can plan no batch meanwhile: the next one is planned here, and reads nothing.
        """
        before, now = self.current(), replace(lineage, folder=_folder_after(lineage.folder))
        assert before is not None
        old, new = self.spark_checkpoint(before), self.spark_checkpoint(now)
        progress = read_progress(old, before.sources, self._topics)
        if progress.planned == progress.committed >= 0:
            empty = record_after(old, progress.planned, {}, now_ms)
            self._add(_record(before, progress.planned + 1), empty)
        made = f"{now.id}/{now.folder}"
        self._remove(made)  # of a start that was killed here
        try:
            copy_all(old, new, until=until, parts=parts)
            change(new)
        except Exception:
            self._remove(made)
            raise
        failpoint("lineage.changed")
        self._write(CURRENT, orjson.dumps(asdict(now)))
        failpoint("lineage.current")
        self._remove(f"{before.id}/{before.folder}")
        return now

    def go_on(self, lineage: LineageInfo) -> None:
        """Keep the current lineage under a new description, when it has one. Durable on return."""
        if lineage != self.current():
            self._write(CURRENT, orjson.dumps(asdict(lineage)))

    def _prune(self, keep: str) -> None:
        """Delete lineages that will not be continued, the newest few excepted; one that is locked stays."""
        old = [id_ for id_ in self._newest_first() if id_ != keep]
        for id_ in old[_KEPT:]:
            if self.lock(LineageInfo(id_, {}, "")):
                self._remove(id_)

    @abstractmethod
    def _make(self, lineage: LineageInfo) -> None:
        """Make the folder for Spark's checkpoint."""

    @abstractmethod
    def _write(self, name: str, content: bytes) -> None:
        """Put a file in the place of one of that name, whole or not at all. Durable on return."""

    @abstractmethod
    def _add(self, name: str, content: bytes) -> None:
        """Put a file where there is none of that name; one that is there stays. Durable on return."""

    @abstractmethod
    def _newest_first(self) -> list[str]:
        """The ids of the lineages that are there."""

    @abstractmethod
    def _remove(self, name: str) -> None:
        """Delete a folder with all that is in it, as far as it is there."""

    @abstractmethod
    def close(self) -> None:
        """Give the locks back."""


def _folder_after(folder: str) -> str:
    """Of the same lineage, when its files are changed."""
    before = folder.removeprefix(FIRST_FOLDER).removeprefix("-")
    return f"{FIRST_FOLDER}-{int(before or 1) + 1}"


def _record(lineage: LineageInfo, batch: int) -> str:
    return f"{lineage.id}/{lineage.folder}/offsets/{batch}"


class LineageDirectory(Lineages):
    """Lineages in a directory of this machine, or of one that it mounts."""

    def __init__(self, directory: Path, topics: Mapping[str, str] = MappingProxyType({})) -> None:
        """See Lineages."""
        super().__init__(directory, topics)
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._locks: list[int] = []

    def lock(self, lineage: LineageInfo) -> bool:
        """See Lineages."""
        path = self._directory / lineage.id
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._locks.append(descriptor)
        return True

    def _make(self, lineage: LineageInfo) -> None:
        (self._directory / lineage.id / lineage.folder).mkdir()

    def _write(self, name: str, content: bytes) -> None:
        path = self._directory / name
        replace_file(path, content, is_durable=True, once_written=lambda: failpoint("lineage.described"))

    def _add(self, name: str, content: bytes) -> None:
        if not (self._directory / name).exists():  # the lock keeps others away
            self._write(name, content)

    def _newest_first(self) -> list[str]:
        found = [path for path in self._directory.iterdir() if path.is_dir()]
        return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)]

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._directory / name)

    def close(self) -> None:
        """See Lineages."""
        while self._locks:
            os.close(self._locks.pop())


def foreign_offsets(place: Location, lineage: str, batch: int) -> dict[str, str] | None:
    """Where a batch ended of sources that are not grete's, as Spark wrote it, by their number in the plan.

    Empty without such sources, and while they have no offset; None where the lineage's files are not, as on another
    machine.

    Raises:
        SparkLogUnreadable: Spark's offset log is damaged.
        ConfigError, FilesUnreachable: see `HadoopLocation`.
    """
    found = current_checkpoint(place)
    if found is None:
        return None
    known, checkpoint = found
    if known.id != lineage or batch not in batches(checkpoint / "offsets"):
        return None
    ends = read_planned(checkpoint, batch).ends
    return {
        number: end.decode("utf-8", "replace")
        for number in known.foreign_sources
        if (end := ends.get(number))
    }


def kept_by(place: Location, lineage: str) -> str | None:
    """What a lineage has in Spark alone, "" for nothing: see `LineageInfo`. None where its record is not."""
    known = current_lineage(place)
    return None if known is None or known.id != lineage else known.kept


def current_lineage(place: Location) -> LineageInfo | None:
    """The lineage of a container that began last; None where there is none, or its description is unreadable."""
    try:
        document = orjson.loads((place / CURRENT).read_bytes())
        starting = document["starting_offsets"]
        sources = document.get("sources", _streams(starting))
        kept = document.get("kept")
        folder, silent = str(document.get("folder", FIRST_FOLDER)), document.get("silent")
        of_query = tuple(map(str, sources)), kept
        return LineageInfo(document["id"], starting, document["plan"], *of_query, folder, silent)
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, WireError):
        return None


def current_checkpoint(place: Location) -> tuple[LineageInfo, Location] | None:
    """The current lineage with Spark's checkpoint location; None where one of both is not there."""
    known = current_lineage(place)
    if known is None or not (checkpoint := place / known.id / known.folder).is_dir():
        return None
    return known, checkpoint


def _streams(starting_offsets: Mapping[str, int]) -> list[str]:
    """The sources of a lineage that an earlier version began: it had one for all inputs."""
    return sorted({str(SystemStreamPartition.parse(ssp).system_stream) for ssp in starting_offsets})
