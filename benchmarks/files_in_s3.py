"""`python -m benchmarks.files_in_s3`: rows into Parquet files in S3, by grete and by hand.

The store is the gateway of the tests, on the same machine, where a copy costs no network. By hand a query writes each
batch by `foreachBatch` in the way of the guides, which may leave half a batch and write one twice, or by Spark's own
sink of files, which counts each once for a single driver. Sides take turns in one session, their rows are compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

import grete
from benchmarks.data_plane import Cost, compare, measure
from benchmarks.local_pipeline import SPARK, Bench, measure_and_keep
from benchmarks.upserts import rows
from grete_workbench.object_stores import ObjectStore, of_spark

_BUCKET = "s3a://lake"
_FORMAT = {"outputs.files.format": "parquet"}


class Files(grete.DataFramePipeline):
    """A row of each record, in files."""

    def build(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        return {"files": rows(inputs["local.in"])}


class Lake(Bench):
    """Records, a session that reaches the store, and a folder there for each run."""

    def __init__(self, records: int, directory: Path, store: ObjectStore) -> None:
        super().__init__(records, directory, {**SPARK, **of_spark(store)})
        self._made: list[str] = []

    def _folder(self) -> str:
        self._made.append(f"{_BUCKET}/{self.next_name()}")
        return self._made[-1]

    def by_grete(self) -> Cost:
        """With its start and its fence."""
        return self.grete("benchmarks.files_in_s3:Files", {**_FORMAT, "outputs.files.path": self._folder()})

    def by_hand_each_batch(self) -> Cost:
        """A `foreachBatch` that writes a folder for each batch."""
        folder = self._folder()

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(f"{folder}/batch={number}")

        return self._by_hand(
            lambda query, checkpoint: (
                query.writeStream.trigger(availableNow=True)
                .foreachBatch(write)
                .option("checkpointLocation", checkpoint)
                .start()
                .awaitTermination()
            )
        )

    def by_sparks_sink(self) -> Cost:
        """`writeStream` with the format of the files."""
        folder = self._folder()
        return self._by_hand(
            lambda query, checkpoint: (
                query.writeStream.trigger(availableNow=True)
                .option("checkpointLocation", checkpoint)
                .start(folder, format="parquet")
                .awaitTermination()
            )
        )

    def _by_hand(self, write: Callable[[DataFrame, str], None]) -> Cost:
        checkpoint = str(self.directory / f"{self.next_name()}-checkpoint")
        cost = measure(partial(write, rows(self.records()), checkpoint))
        own, other = (self.spark.read.parquet(path).select("key", "n") for path in self._made[-2:])
        assert own.count() == other.count() > 0
        assert own.exceptAll(other).count() == 0
        return cost


def run(records: int, pairs: int) -> dict[str, object]:
    """Both comparisons."""
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as folder:
        store = ObjectStore(Path(folder, "store"), settings={"speaks": "s3"})
        store.start()
        try:
            store.make_bucket("lake")
            lake = Lake(records, Path(folder), store)
            return {
                "foreachBatch": compare(records, pairs, lake.by_grete, lake.by_hand_each_batch),
                "sink of files": compare(records, pairs, lake.by_grete, lake.by_sparks_sink),
            }
        finally:
            store.stop()


if __name__ == "__main__":
    what = "Rows into Parquet files in S3 against foreachBatch and Spark's own sink by hand."
    measure_and_keep("files-in-s3", what, run, records=2_000_000, pairs=4)
