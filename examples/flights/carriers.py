"""Per carrier: flights, cancellations, mean and maximum arrival delay. All of it Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import grete

FLIGHT = "carrier string, dep_time int, arr_delay int"


class Carriers(grete.DataFramePipeline):
    """Writes the carriers whose figures changed to `local.carriers`, keyed by carrier: the last record counts."""

    output_mode = "update"
    output = "local.carriers"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        flight = F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")
        [flights] = inputs.values()
        return (
            flights.select(flight)
            .select("flight.*")
            .groupBy(F.col("carrier").alias("key"))
            .agg(
                F.count(F.lit(1)).alias("flights"),
                F.count(F.when(F.col("dep_time").isNull(), 1)).alias("cancelled"),
                F.round(F.avg("arr_delay"), 2).alias("mean_arr_delay"),
                F.max("arr_delay").alias("max_arr_delay"),
            )
        )
