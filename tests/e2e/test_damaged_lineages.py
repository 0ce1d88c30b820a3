"""A lineage that has lost a file, or has one that is damaged or of an earlier day: refused, or no row differs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import grete
from grete.errors import GreteError, StateDoesNotFit
from grete.model.ending import ExitCode, exit_code
from grete.testing.pipeline import PipelineUnderTest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_STEP_S, _IN_WINDOW, _A_DAY, _DAYS = 10, 6, 15, 4
"""Seconds between records, records in a window, records of a day, and days that there were before the damage."""
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}
Damage = Callable[[Path], None]


class Windows(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        read = F.from_json(F.col("value").cast("string"), "t long")
        times = inputs["local.in"].select(F.timestamp_seconds(read["t"]).alias("at"))
        windows = times.withWatermark("at", "0 seconds").groupBy(F.window("at", "1 minute").alias("w"))
        return windows.count().select(
            F.unix_timestamp("w.start").cast("string").alias("key"), F.col("count").alias("n")
        )


def opened(spark: SparkSession, directory: Path, **config: str) -> PipelineUnderTest:
    return PipelineUnderTest(f"{__name__}:Windows", {**CONFIG, **config}, directory=directory, spark=spark)


def run_day(job: PipelineUnderTest, day: int) -> list[tuple[int, int]]:
    """The windows that have come out by the end of the day, in their order there."""
    for number in range(day * _A_DAY, (day + 1) * _A_DAY):
        job.send("local.in", {"t": number * _STEP_S})
    job.run()
    return sorted((int(out.key), out.message["n"]) for out in job.outputs("local.out"))


def expected(days: int) -> list[tuple[int, int]]:
    """All windows but the last, which is open."""
    windows = (days * _A_DAY - 1) // _IN_WINDOW
    return [(number * _IN_WINDOW * _STEP_S, _IN_WINDOW) for number in range(windows)]


def checkpoint(directory: Path) -> Path:
    [found] = directory.glob("jobs/*/container-*/lineages/*/spark")
    return found


@pytest.fixture(scope="module")
def days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A job's folder as it was at the end of each day."""
    work = tmp_path_factory.mktemp("job") / "now"
    work.mkdir()
    found = []
    with opened(spark, work) as job:
        for day in range(_DAYS):
            assert run_day(job, day) == expected(day + 1)
            found.append(work.parent / f"day-{day}")
            shutil.copytree(work, found[-1])
    return found


def numbered(folder: Path) -> list[Path]:
    """Files that are named by numbers, as those of batches and of state are."""
    return sorted((one for one in folder.iterdir() if one.stem.isdigit()), key=lambda one: int(one.stem))


def sidecar(file: Path) -> Path:
    """Where Hadoop keeps a file's checksum."""
    return file.with_name(f".{file.name}.crc")


def deleted(folder: str, at: int = -1) -> Damage:
    def damage(spark: Path) -> None:
        file = spark / folder if not (spark / folder).is_dir() else numbered(spark / folder)[at]
        file.unlink()
        sidecar(file).unlink()

    return damage


def changed(change: Callable[[bytes], bytes], folder: str, at: int = -1, *, without: bool = True) -> Damage:
    """`without`: without the file's checksum, as another program writes files."""

    def damage(spark: Path) -> None:
        file = spark / folder if not (spark / folder).is_dir() else numbered(spark / folder)[at]
        file.write_bytes(change(file.read_bytes()))
        if without:
            sidecar(file).unlink()

    return damage


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def garbage(content: bytes) -> bytes:
    return b"v1\n\xff\xfe garbage\n"


def empty(content: bytes) -> bytes:
    return b""


def older(folder: str, at: int = -1, *, without: bool = True, of: int = -2) -> Damage:
    """A file with the content of one before it."""

    def damage(spark: Path) -> None:
        before = numbered(spark / folder)[of].read_bytes()
        changed(lambda content: before, folder, at, without=without)(spark)

    return damage


def of_an_earlier_day(*folders: str) -> Callable[[Path, Path], None]:
    def damage(spark: Path, earlier: Path) -> None:
        for folder in folders:
            shutil.rmtree(spark / folder)
            shutil.copytree(earlier / folder, spark / folder)

    return damage


STATE = "state/0/0"
REFUSED: Mapping[str, tuple[Damage, str]] = {
    "metadata deleted": (deleted("metadata"), r"spark/metadata is not there"),
    "metadata empty": (changed(empty, "metadata"), r"spark/metadata has no id of a query: b''"),
    "metadata garbage": (changed(garbage, "metadata"), r"spark/metadata has no id"),
    "newest commit truncated": (
        changed(truncated, "commits"),
        r"spark/commits/\d cannot be read: unexpected end",
    ),
    "newest commit truncated, with its checksum": (
        changed(truncated, "commits", without=False),
        r"spark/commits/\d cannot be read",
    ),
    "newest commit garbage": (changed(garbage, "commits"), r"spark/commits/\d cannot be read"),
    "newest commit the first": (older("commits", of=0), r"spark/commits/\d is of an earlier batch"),
    "newest offsets deleted": (deleted("offsets"), r"files are missing"),
    "newest offsets empty": (changed(empty, "offsets"), r"spark/offsets/\d starts with b''"),
    "offsets before deleted": (deleted("offsets", -2), r"cannot read Spark's log .*spark/offsets/\d"),
    "offsets before truncated": (changed(truncated, "offsets", -2), r"spark/offsets/\d cannot be read"),
    "offsets before garbage": (changed(garbage, "offsets", -2), r"spark/offsets/\d cannot be read"),
    "state deleted": (
        deleted(STATE),
        r"a file of its state is not there .*state/0/0/\d.delta does not exist",
    ),
    "state truncated": (changed(truncated, STATE), r"a file of it cannot be read \(EOFException"),
    "state empty": (changed(empty, STATE, 3), r"a file of it cannot be read \(EOFException"),
    "state garbage": (changed(garbage, STATE), r"a file of it cannot be read"),
    "state of the version before": (
        older(STATE, without=False),
        r"cannot be read \(ChecksumException: .*\d.delta",
    ),
    "schema of state garbage": (
        changed(garbage, f"{STATE}/_metadata/schema"),
        r"a file of it cannot be read",
    ),
    "state gone": (
        lambda spark: shutil.rmtree(spark / "state"),
        r"an aggregation, and the files of that state",
    ),
}
HARMLESS: Mapping[str, Damage] = {
    "nothing": lambda spark: None,
    "newest commit deleted": deleted("commits"),
    "commit before deleted": deleted("commits", -2),
    "commit before garbage": changed(garbage, "commits", -2),
    "offsets before of the batch before": older("offsets", -2, of=-3),
    "metadata of state garbage": changed(garbage, "state/0/_metadata/metadata"),
}


def damaged(day: Path, tmp_path: Path, damage: Damage) -> Path:
    copy = tmp_path / "job"
    shutil.copytree(day, copy)
    damage(checkpoint(copy))
    return copy


def refusal(job: PipelineUnderTest) -> str:
    with pytest.raises(GreteError) as raised:
        run_day(job, _DAYS)
    said = str(raised.value)
    assert exit_code(raised.value) == ExitCode.UNUSABLE, said
    assert isinstance(raised.value, StateDoesNotFit)
    assert f"Bring {checkpoint(job.directory)} back whole" in said, "the way out without loss"
    assert "grete run --set job.lineage.state=discard" in said, "and the other one"
    return said


@pytest.mark.parametrize("what", REFUSED)
def test_a_lineage_that_is_damaged_is_refused_at_once_with_what_is_lost_and_the_ways_out(
    spark: SparkSession, days: list[Path], tmp_path: Path, what: str
) -> None:
    damage, words = REFUSED[what]
    with opened(spark, damaged(days[-1], tmp_path, damage)) as job:
        assert re.search(words, refusal(job))


@pytest.mark.parametrize("what", HARMLESS)
def test_a_file_that_spark_does_not_need_any_more_changes_no_row(
    spark: SparkSession, days: list[Path], tmp_path: Path, what: str
) -> None:
    with opened(spark, damaged(days[-1], tmp_path, HARMLESS[what])) as job:
        assert run_day(job, _DAYS) == expected(_DAYS + 1)


@pytest.mark.parametrize("folders", [("commits", "offsets", "state"), ("commits",), ("offsets",), ("state",)])
def test_files_of_an_earlier_day_are_refused(
    spark: SparkSession, days: list[Path], tmp_path: Path, folders: tuple[str, ...]
) -> None:
    earlier = checkpoint(days[1])
    copy = damaged(days[-1], tmp_path, lambda now: of_an_earlier_day(*folders)(now, earlier))
    with opened(spark, copy) as job:
        refusal(job)


def test_a_damaged_lineage_is_given_up_where_an_operator_says_so_and_no_record_is_read_twice(
    spark: SparkSession, days: list[Path], tmp_path: Path
) -> None:
    copy = damaged(days[-1], tmp_path, changed(truncated, STATE))
    with opened(spark, copy, **{"job.lineage.state": "discard"}) as job:
        found = run_day(job, _DAYS)
    closed = expected(_DAYS)
    assert [one for one in found if one in closed] == closed
    assert found[len(closed) :] == [], found
