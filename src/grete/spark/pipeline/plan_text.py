"""Spark's plan of a streaming DataFrame, before a query runs it."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from grete.errors import ApplicationError
from grete.spark.jvm import jvm_of, query_execution

_MODES = ("append", "update", "complete")
_HEADING = "== Physical Plan =="


def checked_plan(frame: DataFrame, output_mode: str) -> str:
    """The physical plan, as `explain` prints it, of a frame that a query of this output mode could run.

    Raises:
        ApplicationError: Spark would refuse the query when it starts; in Spark's words.
    """
    if output_mode not in _MODES:
        raise ApplicationError(f"output_mode = {output_mode!r}: Spark knows {', '.join(_MODES)}")
    # what writeStream.start() does first; pyspark has no other way to it
    java = jvm_of(frame.sparkSession).org.apache.spark.sql
    execution = query_execution(frame)
    mode = getattr(java.streaming.OutputMode, output_mode.capitalize())()
    try:
        java.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(execution.analyzed(), mode)
    except AnalysisException as error:
        raise ApplicationError(f"Spark refuses the plan: {error}") from error
    text = str(execution.explainString(java.execution.ExplainMode.fromString("simple")))
    return text.replace(_HEADING, "").strip()
