"""The same frame by hand, between the source and the sink of Spark's connector to Kafka."""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def passed(records: DataFrame) -> DataFrame:
    """Each record's number as JSON, all in Spark's own operators."""
    number = F.from_json(F.col("value").cast("string"), "n long")["n"].alias("count")
    return records.select("key", F.to_json(F.struct(F.col("key").cast("string"), number)).alias("value"))


def main(bootstrap: str, source: str, target: str, work: str, directory: str) -> None:
    from spark_by_hand import session

    frame = (
        session(os.environ["BENCH_SPARK_JARS"])
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BENCH_BATCH"])
    )
    writer = passed(frame.load()).writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    writer.option("checkpointLocation", f"{directory}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:6])
