"""Folders and tables of a pipeline and its clone, compared by Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.postgresql import PostgreSql

from grete.config.settings.outputs import OutputSettings
from grete.errors import JobError
from grete.model.comparison import Compared
from grete.spark.table_comparison import compare_output

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ORDERS = "id int, shop string, eur double"


class Pair:
    """An output that a job and its clone write."""

    def __init__(self, spark: SparkSession, folder: Path, format: str, **more: str) -> None:
        self._spark = spark
        given = {"format": format, "path": str(folder / "orders"), **more}
        self.config = {f"outputs.orders.{name}": value for name, value in given.items()}

    @property
    def settings(self) -> tuple[OutputSettings, OutputSettings]:
        of_clone = {**self.config, "task.outputs.suffix": "-2"}
        return OutputSettings(self.config, "orders"), OutputSettings(of_clone, "orders")

    def write(self, *frames: DataFrame | None) -> None:
        """A batch of the job, and one of its clone."""
        for frame, output in zip(frames, self.settings, strict=True):
            if frame is not None and output.format == "delta":
                frame.write.format("delta").mode("append").save(output.target_path)
            elif frame is not None:
                writer = frame.write.format(output.format).options(**output.options)
                writer.save(f"{output.target_path}/grete_batch=lineage{output.target_path[-1]}-0")

    def rows(self, *rows: tuple[int | None, str | None, float | None]) -> DataFrame:
        return self._spark.createDataFrame(list(rows), ORDERS)

    def compared(self, *, has_all: bool = True) -> Compared:
        return compare_output(self._spark, *self.settings, has_all=has_all)


def counts(found: Compared) -> tuple[int, ...]:
    return found.same, found.differ, found.missing, found.more


@pytest.mark.parametrize(
    "format_",
    ["delta", "csv", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("parquet", "json"))],
)
def test_rows_without_keys_count_as_often_as_they_are_there(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    pair = Pair(spark, tmp_path, format_, **{"option.header": "true"})
    pair.write(
        pair.rows((1, "a", 0.5), (1, "a", 0.5), (2, "b", None), (3, "c", 1.0)),
        pair.rows((1, "a", 0.5), (2, "b", None), (3, "c", 2.0), (3, "c", 2.0)),
    )
    found = pair.compared()
    assert (found.output, found.other) == (f"{tmp_path}/orders", f"{tmp_path}/orders-2")
    assert (found.records, found.other_records, counts(found)) == (4, 4, (2, 0, 2, 2))
    assert len(found.examples) == 3
    assert not found.is_equal


def test_rows_with_keys_are_compared_by_them_and_numbers_are_summed(
    spark: SparkSession, tmp_path: Path
) -> None:
    pair = Pair(spark, tmp_path, "delta", keys="id,shop")
    tenths = [(n, "a", 0.1 * n) for n in range(10)]
    pair.write(
        pair.rows(*tenths, (20, "b", 1.0), (30, "c", 1.0)),
        pair.rows(*reversed(tenths), (20, "b", 1.5), (40, "d", 1.0)),
    )
    found = pair.compared()
    assert counts(found) == (10, 1, 1, 1)
    assert found.examples == ['{"id":20,"shop":"b"}', '{"id":30,"shop":"c"}', '{"id":40,"shop":"d"}']
    assert found.sums == {"id": (95, 105), "eur": (6.5, 7.0)}


def test_of_a_clone_that_began_at_a_checkpoint_nothing_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    pair = Pair(spark, tmp_path, "delta", keys="id")
    pair.write(pair.rows((1, "a", 1.0), (2, "b", 1.0)), pair.rows((2, "b", 1.0)))
    assert not pair.compared().is_equal
    found = pair.compared(has_all=False)
    assert found.is_equal
    assert (counts(found), found.sums) == ((1, 0, 0, 0), {})


def test_columns_that_only_one_has_are_named_and_all_others_compared(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also numbers of another width, and a column that has become text."""
    pair = Pair(spark, tmp_path, "parquet")
    pair.write(
        pair.rows((1, "7", 1.0)).selectExpr("id", "cast(shop as int) shop", "eur", "eur gross"),
        pair.rows((1, "7", 1.0)).selectExpr("eur net", "shop", "cast(id as bigint) id", "eur"),
    )
    found = pair.compared()
    assert (counts(found), found.only_own, found.only_other) == ((1, 0, 0, 0), ["gross"], ["net"])
    assert not found.is_equal


@pytest.mark.parametrize("format_", ["delta", "json"])
def test_before_its_first_batch_an_output_has_no_rows(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    pair = Pair(spark, tmp_path, format_)
    assert counts(pair.compared()) == (0, 0, 0, 0)
    pair.write(None, pair.rows((1, "a", 1.0)))
    assert counts(pair.compared()) == (0, 0, 0, 1)


def test_tables_of_a_database_are_compared_and_one_that_is_not_there_is_named(
    spark: SparkSession, tmp_path: Path, postgresql: PostgreSql
) -> None:
    postgresql.sql("DROP TABLE IF EXISTS orders, orders_2")
    postgresql.sql("CREATE TABLE orders (id int, eur int); INSERT INTO orders VALUES (1, 2), (2, 3)")
    pair = Pair(spark, tmp_path, **{**postgresql.config, "table": "orders", "keys": "id"})
    with pytest.raises(
        JobError, match=r"orders and orders_2 cannot be compared: .*orders_2.* does not exist.{0,200}$"
    ):
        pair.compared()
    postgresql.sql("CREATE TABLE orders_2 (id int, eur int); INSERT INTO orders_2 VALUES (1, 2), (2, 4)")
    found = pair.compared()
    assert (counts(found), found.sums["eur"]) == ((1, 1, 0, 0), (5, 6))
