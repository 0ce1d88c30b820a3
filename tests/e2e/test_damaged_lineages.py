"""A lineage that has lost a file, or has one that is damaged or of an earlier day: refused, or no row differs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import grete
from grete.errors import StateDoesNotFit
from grete.model.ending import ExitCode, exit_code
from grete.spark.lineage.files import LineageDirectory
from grete.testing.pipeline import PipelineUnderTest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_STEP_S, _IN_WINDOW, _A_DAY, _DAYS = 10, 6, 15, 3
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
LOGS: Mapping[str, tuple[Damage, str]] = {
    "metadata deleted": (deleted("metadata"), r"spark/metadata is not there"),
    "metadata empty": (changed(empty, "metadata"), r"spark/metadata has no id of a query: b''"),
    "metadata garbage": (changed(garbage, "metadata"), r"spark/metadata has no id"),
    "newest commit truncated": (
        changed(truncated, "commits"),
        r"spark/commits/\d cannot be read: unexpected end",
    ),
    "newest commit empty": (changed(empty, "commits"), r"spark/commits/\d starts with b''"),
    "newest commit garbage": (changed(garbage, "commits"), r"spark/commits/\d cannot be read"),
    "newest commit the first": (older("commits", of=0), r"spark/commits/\d is of an earlier batch"),
    "newest offsets deleted": (deleted("offsets"), r"files are missing"),
    "newest offsets truncated": (changed(truncated, "offsets"), r"spark/offsets/\d cannot be read"),
    "newest offsets empty": (changed(empty, "offsets"), r"spark/offsets/\d starts with b''"),
    "newest offsets garbage": (changed(garbage, "offsets"), r"spark/offsets/\d cannot be read"),
    "offsets before deleted": (deleted("offsets", -2), r"cannot read Spark's log .*spark/offsets/\d"),
    "offsets before truncated": (changed(truncated, "offsets", -2), r"spark/offsets/\d cannot be read"),
    "offsets before garbage": (changed(garbage, "offsets", -2), r"spark/offsets/\d cannot be read"),
    "newest offsets of the batch before": (older("offsets"), r"spark/offsets/\d is that of batch \d"),
    "offsets before of the batch before": (
        older("offsets", -2, of=-3),
        r"spark/offsets/\d is that of batch \d",
    ),
}
STATES: Mapping[str, tuple[Damage, str]] = {
    "deleted": (
        deleted(STATE),
        r"a file of its state is not there .*DELTA_FILE_NOT_EXISTS.*state/0/0/\d.delta",
    ),
    "truncated": (changed(truncated, STATE), r"a file of it cannot be read \(EOFException"),
    "garbage": (changed(garbage, STATE, 3), r"a file of it cannot be read"),
    "of the version before": (older(STATE, without=False), r"cannot be read \(ChecksumException: .*\d.delta"),
    "its schema garbage": (changed(garbage, f"{STATE}/_metadata/schema"), r"a file of it cannot be read"),
    "all gone": (
        lambda spark: shutil.rmtree(spark / "state"),
        r"an aggregation, and the files of that state",
    ),
}


def damaged(day: Path, tmp_path: Path, *damages: Damage) -> Path:
    copy = tmp_path / "job"
    shutil.copytree(day, copy)
    for damage in damages:
        damage(checkpoint(copy))
    return copy


def refusal(job: PipelineUnderTest) -> str:
    """What a run of another day is refused with, at once and for good, with both ways out."""
    with pytest.raises(StateDoesNotFit) as raised:
        run_day(job, _DAYS)
    said = str(raised.value)
    assert exit_code(raised.value) == ExitCode.UNUSABLE, said
    assert f"Bring {checkpoint(job.directory)} back whole" in said, "without loss"
    assert "grete run --set job.lineage.state=discard" in said, "with its cost"
    return said


@pytest.mark.one_in(2)
@pytest.mark.parametrize("what", LOGS)
def test_a_damaged_log_of_batches_is_seen_before_spark_starts(
    days: list[Path], tmp_path: Path, what: str
) -> None:
    damage, words = LOGS[what]
    [place] = damaged(days[-1], tmp_path, damage).glob("jobs/*/container-*/lineages")
    with closing(LineageDirectory(place)) as lineages:
        lineage = lineages.current()
        assert lineage is not None
        found = lineages.progress(lineage)
    assert isinstance(found, str), found
    assert re.search(words, found), found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("what", STATES)
def test_a_damaged_state_is_refused_at_once_with_what_is_lost_and_the_ways_out(
    spark: SparkSession, days: list[Path], tmp_path: Path, what: str
) -> None:
    damage, words = STATES[what]
    with opened(spark, damaged(days[-1], tmp_path, damage)) as job:
        said = refusal(job)
    assert re.search(words, said), said


def test_files_that_spark_does_not_need_any_more_change_no_row(
    spark: SparkSession, days: list[Path], tmp_path: Path
) -> None:
    ones = (
        deleted("commits"),
        changed(garbage, "commits", -2),
        changed(garbage, "state/0/_metadata/metadata"),
    )
    with opened(spark, damaged(days[-1], tmp_path, *ones)) as job:
        assert run_day(job, _DAYS) == expected(_DAYS + 1)


@pytest.mark.parametrize("folders", [("commits", "offsets", "state"), ("commits",), ("offsets",), ("state",)])
def test_files_of_an_earlier_day_are_refused(
    spark: SparkSession, days: list[Path], tmp_path: Path, folders: tuple[str, ...]
) -> None:
    copy = damaged(days[-1], tmp_path)
    for folder in folders:
        shutil.rmtree(checkpoint(copy) / folder)
        shutil.copytree(checkpoint(days[0]) / folder, checkpoint(copy) / folder)
    with opened(spark, copy) as job:
        refusal(job)


def test_a_damaged_lineage_is_given_up_where_an_operator_says_so_and_no_record_is_read_twice(
    spark: SparkSession, days: list[Path], tmp_path: Path
) -> None:
    copy = damaged(days[-1], tmp_path, changed(truncated, STATE))
    with opened(spark, copy, **{"job.lineage.state": "discard"}) as job:
        found = run_day(job, _DAYS)
    closed, (was_open, *later) = expected(_DAYS), expected(_DAYS + 1)[len(expected(_DAYS)) :]
    rest = (was_open[0], _IN_WINDOW - _DAYS * _A_DAY % _IN_WINDOW)
    assert found == [*closed, rest, *later], (
        "what it had counted of the open window is lost, and nothing doubled"
    )


@pytest.mark.nightly  # above the same is said and gone on with in one Spark
@pytest.mark.timeout(400)
def test_a_job_that_has_lost_a_file_ends_at_the_first_time_and_goes_on_once_an_operator_says_so(
    counting_pipelines: Any,
) -> None:
    job, _ = counting_pipelines
    job.fill(100)
    assert job.run().returncode == 0
    (checkpoint(job.home) / "metadata").unlink()
    lost = checkpoint(job.home)
    job.fill(100)
    refused = job.run()
    assert refused.returncode == 1, refused.stderr
    assert "container 0 ended with code 8: StateDoesNotFit" in refused.stderr
    assert f"{lost}/metadata is not there" in refused.stderr
    assert f"Bring {lost} back whole" in refused.stderr
    assert "grete run --set job.lineage.state=discard goes on" in refused.stderr
    logs = [path.read_text() for path in (job.home / "jobs" / "counter-1" / "logs").glob("container-?.log")]
    assert max(log.count("metadata is not there") for log in logs) == 1, "it was not tried again"
    before = {key: counts[-1] for key, counts in job.counts().items()}
    done = job.run("--set", "job.lineage.state=discard")
    assert done.returncode == 0, done.stderr
    after = {key: counts[-1] for key, counts in job.counts().items()}
    assert after == before, "each count begins anew, and 100 records make the same ones again"
