"""grete: a DataFrame pipeline; outputs and checkpoints are one transaction a batch."""

from __future__ import annotations

from pyspark.sql import DataFrame
from spark_pipeline import passed

import grete


class Pass(grete.DataFramePipeline):
    def build(self, inputs: dict[str, DataFrame]) -> dict[str, DataFrame]:
        [records] = inputs.values()
        return {self.context.config["bench.target"]: passed(records)}
