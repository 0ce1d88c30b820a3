"""Files that are there for Spark's readers when they are listed, as an output has them in an object store.

On a disk, where files are made in one step too; tests/e2e/test_pipeline_on_s3.py has S3.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from grete import Batch
from grete.config.settings.outputs import OutputSettings
from grete.errors import ConfigError, Fenced
from grete.model.fence import Fence
from grete.private_files import replace_file
from grete.spark.lineage.hadoop_files import HadoopLocation
from grete.spark.sinks.file_list import Objects
from grete.spark.sinks.files import FilesSink
from grete.spark.sinks.listed_files import ListedFilesSink
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class DiskObjects:
    """See Objects: a link is made where there is none, in one step."""

    folder: Path

    def names(self) -> list[str]:
        return [one.name for one in self.folder.iterdir()] if self.folder.is_dir() else []

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def create(self, name: str, content: bytes) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        written = self.folder / f".{name}-{time.monotonic_ns()}"
        replace_file(written, content)
        try:
            (self.folder / name).hardlink_to(written)
        except FileExistsError:
            return False
        finally:
            written.unlink()
        return True

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


class OnDisk(ListedFilesSink):
    def _objects(self, folder: HadoopLocation) -> Objects:
        return DiskObjects(Path(str(folder)))


class Files:
    """A folder, written by containers of any epoch."""

    def __init__(self, spark: SparkSession, path: Path, **config: str) -> None:
        self.path, self._spark = path, spark
        given = {"format": "parquet", "path": str(path)} | {
            key.replace("_", "."): config[key] for key in config
        }
        self.settings = OutputSettings({f"outputs.out.{name}": value for name, value in given.items()}, "out")

    def sink(self, epoch: int) -> ListedFilesSink:
        return OnDisk(self._spark, self.settings, "words", Fence("container/words@1/0", epoch))

    def by_rename(self, epoch: int) -> FilesSink:
        return FilesSink(self._spark, self.settings, "words", Fence("container/words@1/0", epoch))

    def rows(self, *numbers: int) -> DataFrame:
        return self._spark.createDataFrame([(n, str(n % 2)) for n in numbers], "n int, Text string")

    def read(self) -> DataFrame:
        return (
            self._spark.read.format(self.settings.format)
            .schema("n int, Text string, grete_batch string")
            .load(str(self.path))
        )

    def numbers(self) -> list[int]:
        return sorted(row.n for row in self.read().collect())


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_batches_are_there_once_for_readers_of_spark_through_containers_and_compact_entries(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    files = Files(spark, tmp_path / "files", format=format, partition_by="text")
    numbers = 0
    for epoch in range(1, 5):
        sink = files.sink(epoch)
        for _ in range(3):
            sink.write(files.rows(2 * numbers, 2 * numbers + 1), Batch("l", numbers))
            sink.write(files.rows(2 * numbers, 2 * numbers + 1), Batch("l", numbers))
            numbers += 1
    files.sink(9).write(files.rows(22, 23), Batch("l", 11))
    (tmp_path / "files" / "grete_batch=l-3" / "Text=0" / f"part-9-left.{format}").write_text(
        "of a killed task"
    )
    rows = files.read().collect()
    assert sorted((row.n, row.Text, row.grete_batch) for row in rows) == sorted(
        (n, str(n % 2), f"l-{n // 2}") for n in range(24)
    )
    listed = {one.name for one in (tmp_path / "files" / "_spark_metadata").iterdir() if one.name[0] != "."}
    assert "9.compact" in listed
    own = tmp_path / "files" / "_grete" / "words"
    assert [one.name for one in (own / "epochs").iterdir()] == ["9"], (
        "those of earlier containers are removed"
    )
    assert not [one for one in own.rglob("l-*")], "what was listed needs its own list no more"


def test_a_streaming_query_of_spark_reads_what_is_listed_batch_after_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path / "files")
    sink = files.sink(1)

    def follow() -> list[int]:
        query = (
            spark.readStream.schema("n int, Text string, grete_batch string")
            .parquet(str(files.path))
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(tmp_path / "copied"), format="parquet")
        )
        query.awaitTermination()
        return sorted(row.n for row in spark.read.parquet(str(tmp_path / "copied")).collect())

    sink.write(files.rows(1, 2), Batch("l", 0))
    (files.path / "grete_batch=l-0" / "part-9-left.parquet").write_text("of a killed task")
    assert follow() == [1, 2]
    sink.write(files.rows(3), Batch("l", 1))
    assert follow() == [1, 2, 3]


def test_a_driver_that_was_paused_in_a_batch_and_succeeded_lists_no_file_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path / "files")
    release, begun = tmp_path / "release", tmp_path / "begun"

    def paused(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        begun.touch()
        while not release.exists():
            time.sleep(0.01)

    before = files.sink(1)
    before.write(files.rows(1), Batch("l", 0))
    slow = (
        files.rows(2).coalesce(1).mapInArrow(paused, "n int, Text string")
    )  # leaves a core to its successor
    with ThreadPoolExecutor(1) as thread:
        late = thread.submit(before.write, slow, Batch("l", 1))
        eventually(begun.exists, "the first one has begun")
        files.sink(2).write(files.rows(2), Batch("l", 1))
        release.touch()
        with pytest.raises(Fenced, match="epoch 2"):
            late.result()
    for earlier in (before, files.sink(1)):
        for number in (1, 2):
            with pytest.raises(Fenced):
                earlier.write(files.rows(3), Batch("l", number))
    assert files.numbers() == [1, 2]


def test_what_renames_have_published_stays_and_they_publish_nothing_beside_a_list(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As in S3 before hadoop-aws could make a file in one step, which may have left half of the last batch."""
    files = Files(spark, tmp_path / "files")
    old = files.by_rename(1)
    for number in range(3):
        old.write(files.rows(number), Batch("l", number))
    sink = files.sink(2)
    sink.write(files.rows(2), Batch("l", 2))
    sink.write(files.rows(3), Batch("l", 3))
    assert files.numbers() == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match=r"_spark_metadata lists the files that count.*outputs\.out\.path"):
        files.by_rename(3).write(files.rows(4), Batch("l", 4))
    assert files.numbers() == [0, 1, 2, 3]


def test_a_batch_of_no_rows_and_one_that_fails_leave_nothing_that_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path / "files")
    sink = files.sink(1)
    sink.write(files.rows(1).where("n > 1"), Batch("l", 0))
    assert files.numbers() == []
    broken = files.rows(2, 3).select(F.expr("if(n = 3, raise_error('no'), n)").alias("n"), "Text")
    with pytest.raises(Exception, match="no"):
        sink.write(broken, Batch("l", 1))
    sink.write(files.rows(2, 3), Batch("l", 1))
    assert files.numbers() == [2, 3]
    for config, said in (
        (
            {"partition_by": "Colour"},
            r"outputs\.out\.partition\.by=Colour: the output has no column 'Colour'",
        ),
        ({"format": "rate"}, r"outputs\.out\.format=rate is no format of files"),
    ):
        with pytest.raises(ConfigError, match=said):
            Files(spark, tmp_path / "others", **config).sink(1).write(files.rows(1), Batch("l", 0))
