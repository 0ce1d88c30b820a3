"""Outputs that are no streams: a batch is there once, and a container that was succeeded writes nothing more."""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.postgresql import PostgreSql

from grete import Batch, DataFramePipeline
from grete.config.settings import Settings
from grete.config.settings.outputs import OutputSettings
from grete.errors import ApplicationError, ConfigError, Fenced, JobError, StreamUnreachable
from grete.model.ending import ExitCode, exit_code
from grete.model.fence import Fence
from grete.spark.sinks.base import Sink
from grete.spark.sinks.delta import DeltaSink
from grete.spark.sinks.factory import output_streams
from grete.spark.sinks.files import FilesSink
from grete.spark.sinks.jdbc import JdbcSink
from grete.testing.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

APP = "words@1/0/out"


def settings(config: Mapping[str, str]) -> OutputSettings:
    return OutputSettings({f"outputs.out.{name}": value for name, value in config.items()}, "out")


class Target:
    """A place to write to, by containers of any epoch."""

    def __init__(self, spark: SparkSession, output: OutputSettings) -> None:
        self._spark = spark
        self._output = output

    def sink(self, epoch: int, *, replaces: bool = False) -> Sink:
        fence = Fence("container/words@1/0", epoch)
        return JdbcSink(self._spark, self._output, APP, fence, replaces=replaces)

    def rows(self, *numbers: int) -> DataFrame:
        return self._spark.createDataFrame([(n, f"it's {n}") for n in numbers], "n int, Text string")

    def drop(self) -> None:
        raise NotImplementedError

    def numbers(self) -> list[int]:
        raise NotImplementedError


class DeltaTable(Target):
    def __init__(self, spark: SparkSession, path: Path) -> None:
        super().__init__(spark, settings({"format": "delta", "path": str(path)}))

    def sink(self, epoch: int, *, replaces: bool = False) -> Sink:
        fence, noted = Fence("container/words@1/0", epoch), Path(f"{self._output.target_path}-noted")
        return DeltaSink(self._spark, self._output, APP, fence, noted, replaces=replaces)

    def drop(self) -> None:
        shutil.rmtree(self._output.target_path)

    def numbers(self) -> list[int]:
        return sorted(
            row.n for row in self._spark.read.format("delta").load(self._output.target_path).collect()
        )


class DatabaseTable(Target):
    def __init__(self, spark: SparkSession, server: PostgreSql) -> None:
        self.server, self.table = server, f"words_{uuid.uuid4().hex[:8]}"
        server.sql(f'CREATE TABLE {self.table} (n int CHECK (n < 100), "Text" text)')
        server.sql("DROP TABLE IF EXISTS grete_commits")
        super().__init__(spark, settings({**server.config, "table": self.table}))

    def drop(self) -> None:
        self.server.sql(f"DROP TABLE {self.table}")

    def numbers(self) -> list[int]:
        return sorted(int(row[0]) for row in self.server.sql(f"TABLE {self.table}"))


@pytest.fixture(params=["delta", "postgresql"])
def target(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Target:
    if request.param == "delta":
        return DeltaTable(spark, tmp_path / "table")
    return DatabaseTable(spark, request.getfixturevalue("postgresql"))


def test_a_batch_that_is_repeated_by_the_same_or_the_next_container_is_there_once(target: Target) -> None:
    first = target.sink(1)
    first.write(target.rows(1, 2), Batch("l", 0))
    first.write(target.rows(1, 2), Batch("l", 0))
    second = target.sink(2)
    second.write(target.rows(1, 2), Batch("l", 0))
    second.write(target.rows(3), Batch("l", 1))
    target.sink(2).write(target.rows(3), Batch("l", 1))
    target.sink(2).write(target.rows(3), Batch("another lineage", 1))
    assert target.numbers() == [1, 2, 3, 3]


def test_a_container_that_was_succeeded_writes_nothing_more_and_an_older_one_does_not_begin(
    target: Target,
) -> None:
    old, late = target.sink(1), target.sink(1)
    old.write(target.rows(1), Batch("l", 0))
    target.sink(2).write(target.rows(1), Batch("l", 0))
    with contextlib.suppress(Fenced):  # a database says so, Delta writes nothing
        old.write(target.rows(2), Batch("l", 1))
    assert target.numbers() == [1]
    with pytest.raises(Fenced):
        late.write(target.rows(3), Batch("l", 1))
    assert target.numbers() == [1]


def test_a_pipeline_that_sends_its_whole_result_replaces_what_was_there(target: Target) -> None:
    sink = target.sink(1, replaces=True)
    sink.write(target.rows(1, 2), Batch("l", 0))
    sink.write(target.rows(2, 3), Batch("l", 1))
    assert target.numbers() == [2, 3]


def test_a_table_that_was_dropped_is_named_and_not_made_again(target: Target) -> None:
    sink = target.sink(1)
    sink.write(target.rows(1), Batch("l", 0))
    target.drop()
    for late in (sink, sink, target.sink(2)):
        with pytest.raises(JobError, match=r"outputs.out: .*(is gone|does not exist)") as refused:
            late.write(target.rows(2), Batch("l", 1))
        assert not refused.value.may_pass


def test_a_delta_table_that_was_made_anew_is_not_taken_for_the_one_that_was_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = DeltaTable(spark, tmp_path / "table")
    target.sink(1).write(target.rows(1), Batch("l", 0))
    target.drop()
    target.rows(7).write.format("delta").save(f"{tmp_path}/table")
    with pytest.raises(JobError, match=rf"another table is in its place.*remove {tmp_path}/table-noted"):
        target.sink(2).write(target.rows(2), Batch("l", 1))
    assert target.numbers() == [7]
    Path(f"{tmp_path}/table-noted").unlink()
    target.sink(3).write(target.rows(2), Batch("l", 1))
    assert target.numbers() == [2, 7]


def test_a_table_whose_columns_changed_refuses_the_batch_and_takes_it_when_they_fit_again(
    target: Target,
) -> None:
    sink = target.sink(1)
    sink.write(target.rows(1), Batch("l", 0))
    wider = target.rows(2).withColumn("more", F.lit(True))
    for _ in range(2):
        with pytest.raises(JobError, match=r"(?s)outputs.out: .*more") as refused:
            sink.write(wider, Batch("l", 1))
        assert not refused.value.may_pass
    assert target.numbers() == [1]
    target.sink(2).write(target.rows(2), Batch("l", 1))
    assert target.numbers() == [1, 2]


def test_a_delta_table_says_which_columns_it_does_not_have_or_has_of_another_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And the container that is refused is not started again, as nothing would differ."""
    table = DeltaTable(spark, tmp_path / "table")
    with contextlib.closing(table.sink(1)) as sink:
        sink.write(table.rows(1), Batch("lineage", 0, 1))
        for rows, words in (
            (
                table.rows(2).withColumn("extra", F.lit("x")),
                r"has no column extra string \(outputs\.out\.option\.mergeSchema=true adds what is new\)",
            ),
            (
                table.rows(2).withColumn("n", F.array("n")),
                r"its column n is int, and array<int> in the rows",
            ),
        ):
            with pytest.raises(ApplicationError, match=words) as raised:
                sink.write(rows, Batch("lineage", 1, 1))
            assert exit_code(raised.value) == ExitCode.UNUSABLE
    assert table.numbers() == [1]


def test_a_database_that_has_no_room_is_waited_for_and_each_row_is_there_once(
    spark: SparkSession, postgresql: PostgreSql
) -> None:
    table = DatabaseTable(spark, postgresql)
    sink = table.sink(1)
    sink.write(table.rows(1), Batch("l", 0))
    postgresql.sql(
        f"CREATE FUNCTION no_room_{table.table}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left' USING ERRCODE = '53100'; END $$; "
        f"CREATE TRIGGER no_room BEFORE INSERT ON {table.table} EXECUTE FUNCTION no_room_{table.table}()"
    )
    with pytest.raises(StreamUnreachable, match="could not extend file") as full:
        sink.write(table.rows(2), Batch("l", 1))
    assert full.value.may_pass
    postgresql.sql(f"DROP TRIGGER no_room ON {table.table}")
    sink.write(table.rows(2), Batch("l", 1))
    assert table.numbers() == [1, 2]


def test_rows_that_a_database_refuses_are_named_and_nothing_of_the_batch_is_there(
    spark: SparkSession, postgresql: PostgreSql
) -> None:
    table = DatabaseTable(spark, postgresql)
    sink = table.sink(1)
    with pytest.raises(
        JobError, match=r"outputs.out: cannot move batch l-0 to table words_.*violates check"
    ) as refused:
        sink.write(table.rows(1, 200), Batch("l", 0))
    assert not refused.value.may_pass
    assert table.numbers() == []
    sink.write(table.rows(1, 20), Batch("l", 0))
    assert table.numbers() == [1, 20]


def test_a_database_that_is_away_is_waited_for_and_a_wrong_password_or_table_is_named(
    spark: SparkSession, postgresql: PostgreSql
) -> None:
    table = DatabaseTable(spark, postgresql)
    sink = table.sink(1)
    sink.write(table.rows(1), Batch("l", 0))
    postgresql.stop()
    try:
        with pytest.raises(
            StreamUnreachable, match=r"outputs.out: cannot write rows for table words_.*refused"
        ):
            sink.write(table.rows(2), Batch("l", 1))
    finally:
        postgresql.start()
    sink.write(table.rows(2), Batch("l", 1))
    assert table.numbers() == [1, 2]
    for wrong, says in (
        ({"password": "wrong"}, "password authentication failed"),
        ({"table": "gone"}, '"gone" does not'),
    ):
        other = JdbcSink(
            spark,
            settings({**postgresql.config, "table": table.table, **wrong}),
            "other@1/0/out",
            Fence("f", 1),
            replaces=False,
        )
        with pytest.raises(JobError, match=says) as refused:
            other.write(table.rows(2), Batch("l", 1))
        assert not refused.value.may_pass


def test_a_delta_table_in_s3_is_warned_of_unless_its_log_is_for_several_drivers(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output, key = settings({"format": "delta", "path": "s3a://lake/of"}), "spark.delta.logStore.s3a.impl"
    DeltaSink(spark, output, APP, Fence("f", 1), tmp_path / "noted", replaces=False)
    assert f"paused and succeeded can overwrite its successor's commit; set {key}" in caplog.text
    caplog.clear()
    spark.conf.set(key, "another.LogStore")
    try:
        DeltaSink(spark, output, APP, Fence("f", 1), tmp_path / "noted", replaces=False)
    finally:
        spark.conf.unset(key)
    assert not caplog.text


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_files_of_a_batch_are_there_whole_and_once_and_what_was_cut_short_is_not_seen(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    output = settings({"format": format, "path": f"{tmp_path}/files", "partition.by": "n"})
    rows = spark.createDataFrame([(n, str(n)) for n in range(4)], "n int, text string")
    FilesSink(spark, output, "words", Fence("words", 1)).write(rows, Batch("l", 0))
    half = tmp_path / "files" / "_grete" / "words" / "1" / "l-1" / "n=9"
    half.mkdir(parents=True)
    (half / f"part-0.{format}").write_text("half of a file")
    again = FilesSink(spark, output, "words", Fence("words", 2))
    again.write(rows, Batch("l", 0))
    again.write(rows, Batch("l", 1))
    found = spark.read.format(format).load(output.target_path)
    assert sorted((row.grete_batch, row.n, row.text) for row in found.collect()) == [
        (f"l-{batch}", n, str(n)) for batch in range(2) for n in range(4)
    ]
    assert not list(tmp_path.rglob("n=9"))


class Files(Target):
    def __init__(self, spark: SparkSession, path: Path) -> None:
        super().__init__(spark, settings({"format": "parquet", "path": str(path)}))

    def sink(self, epoch: int, *, replaces: bool = False) -> Sink:
        return FilesSink(self._spark, self._output, "words", Fence("container/words@1/0", epoch))

    def numbers(self) -> list[int]:
        return sorted(row.n for row in self._spark.read.parquet(self._output.target_path).collect())


def test_a_driver_that_was_paused_in_a_batch_and_succeeded_publishes_no_file_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It wakes while its rows are computed, or with its folder complete; each time its successor has written them."""
    target = Files(spark, tmp_path / "files")
    release = tmp_path / "release"

    def paused(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        while not release.exists():
            time.sleep(0.01)

    before = target.sink(1)
    before.write(target.rows(1), Batch("l", 0))
    slow = (
        target.rows(2).coalesce(1).mapInArrow(paused, "n int, Text string")
    )  # leaves a core to its successor
    with ThreadPoolExecutor(1) as thread:
        late = thread.submit(before.write, slow, Batch("l", 1))
        eventually(lambda: list(tmp_path.rglob("_temporary")), "the first one has begun")
        target.sink(2).write(target.rows(2), Batch("another lineage", 0))
        release.touch()
        with pytest.raises(Fenced, match="epoch 2"):
            late.result()
    with pytest.raises(Fenced):
        before.write(target.rows(3), Batch("l", 2))
    with pytest.raises(Fenced):
        target.sink(1).write(target.rows(3), Batch("l", 2))
    assert target.numbers() == [1, 2]


def test_a_folder_of_an_earlier_run_is_taken_away_however_often_it_is_made_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = Files(spark, tmp_path / "files")
    target.sink(1).write(target.rows(1), Batch("l", 0))
    own, ended = tmp_path / "files" / "_grete" / "words" / "1", Event()

    def make_again() -> None:
        made = 0
        while made < 20 and not ended.is_set():
            with contextlib.suppress(OSError):
                (own / "l-1").mkdir(parents=True)
                made += 1
            time.sleep(0.001)

    with ThreadPoolExecutor(1) as thread:
        making = thread.submit(make_again)
        try:
            target.sink(2).write(target.rows(2), Batch("l", 1))
        finally:
            ended.set()
        making.result()
    assert own.is_file()
    assert target.numbers() == [1, 2]


class Own(DataFramePipeline):
    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"]


class WithBatches(Own):
    def write_batch(self, name: str, frame: DataFrame, batch: Batch) -> None:
        """Never called."""


def test_an_output_is_a_stream_or_configured_or_the_applications_own_else_it_is_refused() -> None:
    known = Settings.of({"outputs.table.format": "delta", "systems.kafka.samza.factory": "kafka"})
    found = output_streams(["local.a", "kafka.b.c", "table"], known, Own())
    assert [str(stream) for stream in found.values()] == ["local.a", "kafka.b.c", "None"]
    assert output_streams(["mine"], known, WithBatches()) == {"mine": None}
    for name, pipeline in (("mine", Own()), ("kafak.b", WithBatches()), ("local.", Own())):
        with pytest.raises(ConfigError, match=f"output '{name}' of the pipeline is no stream"):
            output_streams([name], known, pipeline)


def test_a_missing_setting_is_named() -> None:
    for name in ("format", "target_path", "target_table", "url"):
        key = name.removeprefix("target_")
        with pytest.raises(ConfigError, match=rf"outputs\.out\.{key} is not set"):
            getattr(settings({}), name)
