"""Whether a query fits a checkpoint location: Spark's own answer, without a row that is read."""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from grete.spark.failures.error_classes import wrong_with
from grete.spark.failures.translation import text_with_traces
from grete.text_logs import shortened

_WITHIN_S = 300


class _Fits(Exception):
    """Ends the query where Spark has planned its batch, and compared the plan with what the location has."""


def misfit(frame: DataFrame, output_mode: str, copy: Path) -> str:
    """Start the frame as a query in a copy of a location, see `copy_without_state`; what does not fit, else "".

    Spark compares the operators, in their order, and the columns of their state when it plans a batch, which it does
    before anything is read; the query ends there.
    """
    planned = []

    def end(rows: DataFrame, number: int) -> None:
        planned.append(number)
        raise _Fits

    writer = frame.writeStream.foreachBatch(end).outputMode(output_mode).trigger(availableNow=True)
    try:
        query = writer.option("checkpointLocation", str(copy)).start()
        query.awaitTermination(_WITHIN_S)
        query.stop()
    except PySparkException as error:
        if not planned:
            text = text_with_traces(error)
            return wrong_with(text) or shortened(str(error), 1000)
    return "" if planned else f"Spark planned no batch of it within {_WITHIN_S} s"
