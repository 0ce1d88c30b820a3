"""Whether a query fits a checkpoint location: Spark's own answer, without a row that is read."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from grete.spark.failures.error_classes import wrong_with
from grete.spark.failures.translation import text_with_traces
from grete.spark.lineage.decision import listed
from grete.spark.lineage.location import Location
from grete.spark.lineage.offset_log import read_batch_end
from grete.spark.lineage.parted_sources import Parts
from grete.spark.lineage.query_files import copy_all, copy_without_state
from grete.spark.lineage.source_log import SparkLogUnreadable, batches
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


def compared(
    frame: DataFrame,
    output_mode: str,
    sources: Sequence[str],
    query: Location,
    parts: Parts | None,
    topics: Mapping[str, str],
) -> str:
    """Why a frame that reads these sources does not fit a location, with `parts` of it, "" where it does.

    The location stays as it is: a copy of what Spark compares is made on this machine. One without a batch has
    nothing that could not fit.
    """
    if not batches(query / "offsets"):
        return ""
    with tempfile.TemporaryDirectory(prefix="grete-query-") as folder:
        copy = Path(folder) / "as-it-is"
        copy_without_state(query, copy)
        if parts is not None:
            copy_all(copy, copy := Path(folder) / "parted", parts=parts)
        try:
            read_batch_end(copy, batches(copy / "offsets")[-1], sources, topics)
        except SparkLogUnreadable as error:
            return f"build reads {listed(sources)}, in this order: {error}"
        return misfit(frame, output_mode, copy)
