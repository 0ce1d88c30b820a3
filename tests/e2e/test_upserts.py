"""Rows of tables that take the place of those with the same keys: once a batch, by the container that writes now."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.postgresql import PostgreSql

import grete
from grete import Batch
from grete.config.settings.outputs import OutputSettings
from grete.errors import ApplicationError, ConfigError, Fenced
from grete.model.fence import Fence
from grete.spark.failures.translation import failed
from grete.spark.sinks.base import Sink
from grete.spark.sinks.delta import DeltaSink
from grete.spark.sinks.jdbc import JdbcSink
from grete.testing.pipeline import PipelineUnderTest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
APP = "orders@1/0/out"
KEYED = {"keys": "id,shop", "order.by": "at", "deleted.column": "gone"}


class Table:
    """A table of orders, by id and shop, and containers of any epoch that write it."""

    def __init__(self, spark: SparkSession, folder: Path, server: PostgreSql | None) -> None:
        self._spark, self._folder, self._server = spark, folder, server
        self.name = f"orders_{uuid.uuid4().hex[:8]}"
        self.config = {"format": "delta", "path": str(folder / "table")}
        if server is not None:
            server.sql(f"CREATE TABLE {self.name} (id int, shop text, at int, PRIMARY KEY (id, shop))")
            server.sql("DROP TABLE IF EXISTS grete_commits")
            self.config = {**server.config, "table": self.name}

    def sink(self, epoch: int, **more: str) -> Sink:
        given = {**self.config, **KEYED, **{key.replace("__", "."): value for key, value in more.items()}}
        given = {f"outputs.out.{name}": value for name, value in given.items() if value}
        settings, fence = OutputSettings(given, "out"), Fence("container/orders@1/0", epoch)
        if self._server is not None:
            return JdbcSink(self._spark, settings, APP, fence, replaces=False)
        return DeltaSink(self._spark, settings, APP, fence, self._folder / "noted", replaces=False)

    def given(self, *rows: tuple[int | None, str, int, bool | None]) -> DataFrame:
        return self._spark.createDataFrame(list(rows), "id int, shop string, at int, gone boolean")

    def rows(self) -> list[tuple[int, str, int]]:
        if self._server is not None:
            found = self._server.sql(f"TABLE {self.name}")
            return sorted((int(id_), shop, int(at)) for id_, shop, at in found)
        table = self._spark.read.format("delta").load(self.config["path"])
        assert table.columns == ["id", "shop", "at"], "whether a row is gone is not written"
        return sorted((row.id, row.shop, row.at) for row in table.collect())


@pytest.fixture(params=["delta", "postgresql"])
def table(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Table:
    server = request.getfixturevalue("postgresql") if request.param == "postgresql" else None
    return Table(spark, tmp_path, server)


def test_rows_are_added_changed_and_deleted_by_their_keys_and_the_last_of_a_batch_counts(
    table: Table,
) -> None:
    sink = table.sink(1)
    first = table.given((1, "a", 1, False), (1, "b", 1, None), (2, "a", 1, False), (3, "a", 1, True))
    sink.write(first, Batch("l", 0))
    assert table.rows() == [(1, "a", 1), (1, "b", 1), (2, "a", 1)]
    second = table.given((1, "a", 3, False), (1, "a", 2, True), (2, "a", 2, False), (2, "a", 4, True))
    sink.write(second, Batch("l", 1))
    assert table.rows() == [(1, "a", 3), (1, "b", 1)]


def test_a_batch_is_there_once_and_who_was_succeeded_changes_nothing_more(table: Table) -> None:
    old = table.sink(1)
    old.write(table.given((1, "a", 1, False)), Batch("l", 0))
    new = table.sink(2)
    new.write(table.given((1, "a", 1, False)), Batch("l", 0))
    new.write(table.given((1, "a", 2, False)), Batch("l", 1))
    with contextlib.suppress(Fenced):  # a database says so, Delta changes nothing
        old.write(table.given((1, "a", 9, True), (2, "a", 9, False)), Batch("l", 1))
    new.write(table.given((1, "a", 2, False)), Batch("l", 1))
    assert table.rows() == [(1, "a", 2)]
    table.sink(3).write(table.given((1, "a", 99, False)), Batch("l", 1))
    assert table.rows() == [(1, "a", 2)], "the table itself says that it has this batch"
    with pytest.raises(Fenced):
        table.sink(1).write(table.given((1, "a", 7, True)), Batch("l", 2))
    assert table.rows() == [(1, "a", 2)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ([(1, "a", 1, False), (1, "a", 2, False)], {"order__by": ""}, "several rows of a batch have the same id"),
        ([(None, "a", 1, False)], {}, "a row has no id, shop, which is its key"),
        ([(1, "a", 1, False)], {"keys": "id,shup"}, "build gives it no column shup; it has id, shop, at, gone"),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_is_named_and_nothing_of_the_batch_is_there(
    table: Table, rows: Sequence[Any], more: Mapping[str, str], said: str
) -> None:
    table.sink(1).write(table.given((5, "a", 1, False)), Batch("l", 0))
    with pytest.raises(Exception, match=said) as refused:
        table.sink(2, **more).write(table.given(*rows), Batch("l", 1))
    error = refused.value
    assert isinstance(error if isinstance(error, ApplicationError) else failed(error), ApplicationError)
    assert table.rows() == [(5, "a", 1)]


class Totals(grete.DataFramePipeline):
    """The total of each customer so far, which Spark sends when it changes."""

    output, output_mode = "totals", "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        amount = F.col("value").cast("string").cast("int")
        return (
            inputs["local.in"]
            .groupBy(F.col("key").cast("string").alias("customer"))
            .agg(F.sum(amount).alias("n"))
        )


@pytest.mark.nightly  # 22 s; the tests above upsert batches of the same kinds
def test_a_table_follows_an_aggregation_over_starts(
    start_pipeline: Callable[..., PipelineUnderTest], spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "totals")
    config = {
        "task.inputs": "local.in",
        "systems.local.samza.offset.default": "oldest",
        "outputs.totals.format": "delta",
        "outputs.totals.path": path,
        "outputs.totals.keys": "customer",
    }
    job = start_pipeline(Totals, config)

    def totals() -> dict[str, int]:
        return {row.customer: row.n for row in spark.read.format("delta").load(path).collect()}

    for amounts, expected in (((1, 2), {"ann": 3, "bob": 7}), ((10,), {"ann": 13, "bob": 14})):
        for amount in amounts:
            job.send_bytes("local.in", b"%d" % amount, key=b"ann")
        job.send_bytes("local.in", b"7", key=b"bob")
        job.run()
        assert totals() == expected
        job.restart()


@pytest.mark.parametrize(
    ("more", "mode", "kind", "said"),
    [
        ({"format": "parquet"}, "append", ConfigError, r"keys is for tables that are changed by rows: files"),
        ({}, "complete", ConfigError, r"keys is for tables that are changed by rows: output_mode"),
        (
            {"keys": "", "order.by": "count"},
            "append",
            ConfigError,
            r"keys is not set: without it rows are added",
        ),
        ({"keys": "custmer"}, "append", ApplicationError, r"no column custmer; it has customer"),
    ],
)
def test_what_a_start_would_refuse_is_refused_with_the_plan(
    start_pipeline: Callable[..., PipelineUnderTest],
    tmp_path: Path,
    more: Mapping[str, str],
    mode: str,
    kind: type[Exception],
    said: str,
) -> None:
    class Whole(Totals):
        output_mode = mode

        def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
            rows = inputs["local.in"].select(F.col("key").cast("string").alias("customer"))
            return rows.groupBy("customer").count() if mode == "complete" else rows

    given = {"format": "delta", "path": str(tmp_path / "totals"), "keys": "customer", **more}
    outputs = {f"outputs.totals.{key}": value for key, value in given.items() if value}
    job = start_pipeline(Whole, {"task.inputs": "local.in", **outputs})
    with pytest.raises(kind, match=rf"outputs\.totals.*{said}"):
        job.plan()
