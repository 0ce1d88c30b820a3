"""`python -m benchmarks.upserts`: rows that take each other's place in a Delta table, by grete and by hand.

The records are those of `local_pipeline`: 40 for each of 5,000 keys in a batch, of which the last counts. By hand a
`foreachBatch` takes the last row of each key and merges it. Both sides take turns in one session; after each pair
their tables are compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

import grete
from benchmarks.data_plane import Cost, compare, measure
from benchmarks.local_pipeline import SPARK, Bench, measure_and_keep

_FIELDS = "n long, carrier string, delay long"
_FORMAT = {"outputs.table.format": "delta", "outputs.table.path": "nowhere"}


def rows(records: DataFrame) -> DataFrame:
    """A row for each record."""
    read = F.from_json(F.col("value").cast("string"), _FIELDS)
    return records.select(F.col("key").cast("string").alias("key"), read.alias("r")).select("key", "r.*")


class Last(grete.DataFramePipeline):
    """The last row of each key in a table."""

    def build(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        return {"table": rows(inputs["local.in"])}


class Tables(Bench):
    """Records, a session with Delta, and a table for each run."""

    def __init__(self, records: int, directory: Path) -> None:
        super().__init__(records, directory, {**SPARK, **_FORMAT})
        self._made: list[str] = []

    def _table(self) -> str:
        self._made.append(str(self.directory / self.next_name()))
        return self._made[-1]

    def upserts(self) -> Cost:
        """By grete."""
        keys = {
            "outputs.table.keys": "key",
            "outputs.table.order.by": "n",
            "outputs.table.path": self._table(),
        }
        return self.grete("benchmarks.upserts:Last", {**_FORMAT, **keys})

    def upserts_by_hand(self) -> Cost:
        """By a query that a careful hand writes."""
        table = self._table()
        self.spark.createDataFrame([], f"key string, {_FIELDS}").write.format("delta").save(table)
        last = Window.partitionBy("key").orderBy(F.desc("n"))

        def merge(batch: DataFrame, number: int) -> None:
            newest = batch.withColumn("place", F.row_number().over(last)).where("place = 1").drop("place")
            newest.createOrReplaceTempView("newest")
            newest.sparkSession.sql(
                f"MERGE INTO delta.`{table}` t USING newest s ON t.key = s.key "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        query = rows(self.records()).writeStream.trigger(availableNow=True).foreachBatch(merge)
        started = query.option("checkpointLocation", f"{table}-checkpoint")
        cost = measure(lambda: started.start().awaitTermination())
        self._compare()
        return cost

    def _compare(self) -> None:
        """The last two tables are the same."""
        own, other = (self.spark.read.format("delta").load(path) for path in self._made[-2:])
        assert own.count() == other.count() > 0
        assert own.exceptAll(other).count() == 0


def run(records: int, pairs: int) -> dict[str, object]:
    """The comparison."""
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as folder:
        tables = Tables(records, Path(folder))
        return {"delta": compare(records, pairs, tables.upserts, tables.upserts_by_hand)}


if __name__ == "__main__":
    what = "Upserts into a Delta table against foreachBatch by hand."
    measure_and_keep("upserts", what, run, records=2_000_000, pairs=4)
