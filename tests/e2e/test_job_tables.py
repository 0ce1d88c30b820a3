"""What there is of a job as tables of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.unit.finished_job import changelog_of_totals, finish_job

from grete import tables
from grete.clock import SystemClock
from grete.systems.local.system import LocalSystem

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a job of two tasks that has finished, with one record of seven left."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, closing(LocalSystem(home / "local", SystemClock())) as system:
        patch.setenv("GRETE_HOME", str(home))
        finish_job(system)
        changelog_of_totals(system)
        yield home


def table(spark: SparkSession, home: Path, name: str, **options: str) -> DataFrame:
    tables.register(spark)
    return spark.read.format("grete").options(**{"job": "orders", "home": str(home), **options}).load(name)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_an_operator_asks_a_store_and_the_job_with_sql(spark: SparkSession, job: Path) -> None:
    store = table(spark, job, "store/totals")
    store.createOrReplaceTempView("totals")
    found = spark.sql("SELECT task, key, CAST(value AS INT) FROM totals WHERE value > 2")
    assert rows(found) == [("Partition 0", "a", 3), ("Partition 1", "z", 5)]
    assert store.rdd.getNumPartitions() == 2
    assert rows(store.selectExpr("unix_millis(time)"))[0] == (1,)
    assert rows(table(spark, job, "checkpoints")) == [
        (f"Partition {p}", f"local.in.{p}", "2", 4) for p in (0, 1)
    ]
    lag = table(spark, job, "lag")
    assert rows(lag.groupBy().sum("lag")) == [(1,)]
    assert rows(table(spark, job, "history").select("event")) == [("deployment",)]


def test_what_is_not_there_is_named(spark: SparkSession, job: Path) -> None:
    for name, options, said in (
        ("stores", {}, "there is no table 'stores' of a job"),
        ("checkpoints", {"job": ""}, r"name the job: .option\(\"job\""),
        ("store/total", {}, "the job has no store 'total'; did you mean totals"),
        ("lag", {"job": "order"}, "there is no job order"),
    ):
        with pytest.raises(Exception, match=said):
            table(spark, job, name, **options).collect()
