"""Lineages on disk: `lineages/<id>/{lineage.json,spark/}` and which one is current.

The whole directory belongs to one container at a time, held by a file lock that dies with its process. A container
whose predecessor still lives (it is stopping, or paused) does not touch that one's Spark checkpoint: it starts a
new lineage, and the predecessor's next commit is fenced.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

import orjson

from grete.errors import WireError
from grete.failpoints import failpoint
from grete.model.ids import SystemStreamPartition
from grete.spark.lineage import LineageInfo
from grete.spark.offset_log import SparkProgress, read_progress
from grete.spark.source_log import SparkLogUnreadable, batches, read_planned

_KEPT = 3
"""Lineages kept for looking at; older ones are deleted when a new one starts."""


class LineageDirectory:
    """The lineages of one container of one job."""

    def __init__(self, directory: Path, topics: Mapping[str, str] = MappingProxyType({})) -> None:
        """`topics`: see `offset_log.read_batch_end`."""
        self._directory = directory
        self._topics = topics
        directory.mkdir(parents=True, exist_ok=True)
        self._locks: list[int] = []

    def current(self) -> LineageInfo | None:
        """The lineage started last, None when there is none or its description is unreadable."""
        return _current(self._directory)

    def lock(self, lineage: LineageInfo) -> bool:
        """Take the lineage for this process; False when another living process has it."""
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

    def spark_checkpoint(self, lineage: LineageInfo) -> Path:
        """Spark's checkpoint location of a lineage."""
        return self._directory / lineage.id / "spark"

    def progress(self, lineage: LineageInfo) -> SparkProgress | str | None:
        """Where Spark stands in it; None when its directory is gone, a text when its logs are unreadable."""
        checkpoint = self.spark_checkpoint(lineage)
        if not checkpoint.is_dir():
            return None
        try:
            return read_progress(checkpoint, lineage.sources, self._topics)
        except SparkLogUnreadable as error:
            return str(error)

    def planned_settings(self, lineage: LineageInfo) -> Mapping[str, str]:
        """Spark's settings as of its first batch that is still known; empty before there is one."""
        checkpoint = self.spark_checkpoint(lineage)
        known = batches(checkpoint / "offsets")
        return read_planned(checkpoint, known[0]).settings if known else {}

    def start(
        self,
        starting_offsets: Mapping[str, int],
        plan: str,
        sources: Sequence[str] = (),
        kept: str | None = None,
    ) -> LineageInfo:
        """Begin a new lineage and make it the current one. Durable on return."""
        lineage = LineageInfo(uuid.uuid4().hex, dict(starting_offsets), plan, tuple(sources), kept)
        locked = self.lock(lineage)
        assert locked, "a lineage that no other process knows of is locked"
        self.spark_checkpoint(lineage).mkdir()
        failpoint("lineage.locked")
        _write_durably(self._directory / "current.json", orjson.dumps(asdict(lineage)))
        failpoint("lineage.current")
        self._prune(keep=lineage.id)
        return lineage

    def go_on(self, lineage: LineageInfo) -> None:
        """Keep the current lineage under a new description, when it has one. Durable on return."""
        if lineage != self.current():
            _write_durably(self._directory / "current.json", orjson.dumps(asdict(lineage)))

    def _prune(self, keep: str) -> None:
        """Delete lineages that will not be continued, the newest few excepted; one that is locked stays."""
        old = [path for path in self._directory.iterdir() if path.is_dir() and path.name != keep]
        old.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in old[_KEPT:]:
            if self.lock(LineageInfo(path.name, {}, "")):
                shutil.rmtree(path)

    def close(self) -> None:
        """Give the locks back."""
        while self._locks:
            os.close(self._locks.pop())


def foreign_offsets(directory: Path, lineage: str, batch: int) -> dict[str, str]:
    """Where a batch ended of sources that are not grete's, as Spark wrote it, by their number in the plan.

    Empty without such sources, and where the lineage's files are not, as on another machine.

    Raises:
        SparkLogUnreadable: Spark's offset log is damaged.
    """
    known, checkpoint = _current(directory), directory / lineage / "spark"
    if known is None or known.id != lineage or batch not in batches(checkpoint / "offsets"):
        return {}
    ends = read_planned(checkpoint, batch).ends
    foreign = [str(number) for number, source in enumerate(known.sources) if not source]
    return {number: end.decode("utf-8", "replace") for number in foreign if (end := ends.get(number))}


def _current(directory: Path) -> LineageInfo | None:
    try:
        document = orjson.loads((directory / "current.json").read_bytes())
        starting = document["starting_offsets"]
        sources = document.get("sources", _streams(starting))
        kept = document.get("kept")
        return LineageInfo(document["id"], starting, document["plan"], tuple(map(str, sources)), kept)
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, WireError):
        return None


def _streams(starting_offsets: Mapping[str, int]) -> list[str]:
    """The sources of a lineage that an earlier version began: it had one for all inputs."""
    return sorted({str(SystemStreamPartition.parse(ssp).system_stream) for ssp in starting_offsets})


def _write_durably(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    failpoint("lineage.described")
    temporary.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
