"""The files of a query's checkpoint location: all, or those by which Spark judges whether a plan fits them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from grete.spark.lineage.location import Location, WritableLocation
from grete.spark.lineage.parted_sources import Parts
from grete.spark.lineage.source_log import batches, record_after

_NUMBERED = re.compile(r"\.?(\d+)(?:[._]|\Z)")
"""Batches and versions of state; with a checksum or an attempt's mark behind them. Files of RocksDB are none."""
_UNFINISHED = (".tmp", ".tmp.crc")
_PARTITION = "0"
"""Spark writes the columns of an operator's state beside the state of this partition."""


def copy_all(
    query: Location, to: WritableLocation, *, until: int | None = None, parts: Parts | None = None
) -> None:
    """Copy a checkpoint location into a folder. Durable on return: its thousands of files reach the disk together.

    With `until` the copy is what a crash right behind this batch would have left, while the query goes on: a later
    batch is not in it, and this one may be run again. What the query removes meanwhile is left out. With `parts` the
    copy is that of a query with other sources.

    Raises:
        OSError: there is no room, or a file cannot be read.
        FilesUnreachable, ConfigError: see `HadoopLocation`.
    """
    for path, file in files_below(query):
        if until is not None and _is_later(path, until):
            continue
        # a query that goes on removes what it has no use for
        is_gone = (FileNotFoundError,) if until is not None else ()
        with suppress(*is_gone):
            for at, content in [(path, None)] if parts is None else parts.files(path, file):
                _copy(file, to / at, content)
    if isinstance(to, Path):
        os.sync()


def _is_later(path: str, until: int) -> bool:
    """Whether a file is of a later batch, or not written to its end. A batch makes the version behind its number."""
    name = path.rpartition("/")[2]
    if name.endswith(_UNFINISHED):
        return True
    number, folder = _NUMBERED.match(name), path.partition("/")[0]
    if number is None or folder not in ("offsets", "commits", "state"):
        return False
    return int(number[1]) > until + (folder == "state")


def _copy(file: Location, to: WritableLocation, content: bytes | None = None) -> None:
    if content is None and isinstance(file, Path) and isinstance(to, Path):
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
    else:
        _write(to, file.read_bytes() if content is None else content)


def files_below(folder: Location, at: str = "") -> Iterator[tuple[str, Location]]:
    """Every file in the folder and in those below it, by name, with its path from there; none where it is not."""
    for found in sorted(folder.iterdir(), key=lambda one: one.name) if folder.is_dir() else ():
        path = f"{at}{found.name}"
        if found.is_dir():
            yield from files_below(found, f"{path}/")
        else:
            yield path, found


def copy_without_state(query: Location, to: Path) -> None:
    """Copy what Spark reads before it computes a batch: its logs, where sources began, and which operators keep what.

    The copy stands before a batch that is planned: where the query has none, one that reads nothing. Of the batch
    after a committed one Spark compares the plan with the state; of a query's first batch it compares nothing.

    Raises:
        OSError: a file cannot be read or written.
        SparkLogUnreadable: the last record cannot be read.
    """
    last = batches(query / "offsets")[-1]
    for name in ("offsets", "commits"):
        for number in {last, last - 1} & set(batches(query / name)):
            _copy(query / name / str(number), to / name / str(number))
    if last in batches(query / "commits"):
        _write(to / "offsets" / str(last + 1), record_after(query, last, {}, now_ms=0))
    _copy(query / "metadata", to / "metadata")
    for name in ("sources", "state"):
        found = files_below(query / name) if name == "sources" else _descriptions(query / name)
        for path, file in found:
            _copy(file, to / name / path)


def _descriptions(state: Location) -> Iterator[tuple[str, Location]]:
    """What is said of each operator's state: in folders whose names begin with an underscore."""
    for operator in state.iterdir() if state.is_dir() else ():
        for found in operator.iterdir() if operator.is_dir() else ():
            at = f"{operator.name}/{found.name}/"
            if found.name.startswith("_"):
                yield from files_below(found, at)
            elif found.name == _PARTITION:
                yield from _of_stores(found, at)


def _of_stores(folder: Location, at: str) -> Iterator[tuple[str, Location]]:
    """Of a partition's stores; a join has four, each in a folder."""
    for found in folder.iterdir():
        if found.name.startswith("_"):
            yield from files_below(found, f"{at}{found.name}/")
        elif "." not in found.name and found.is_dir():
            yield from _of_stores(found, f"{at}{found.name}/")


def _write(to: WritableLocation, content: bytes) -> None:
    if isinstance(to, Path):
        to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(content)
