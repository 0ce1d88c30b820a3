"""Spark's own reports of a query's batches (StreamingQueryProgress) as metrics of the container.

Groups are `spark.query`, `spark.duration` (the phases of the last batch), `spark.source.NAME` for each source,
`spark.operator.NUMBER.NAME` for each operator that keeps state, and `expectation.NAME` for what `build` expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from grete.application.expectations import EXPECTATION
from grete.spark.jvm import java_query
from grete.spark.pipeline.late_rows import LateRows, dropped_rows
from grete.wire.metric_values import Count, Durations, Level, Metrics, MetricValue

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_EXECUTED = "addBatch"
"""The phase that only a trigger with a batch has."""


class ProgressReader:
    """Reads the reports of one query, each once, and warns of rows that were dropped as late.

    `sources` are its sources by name, empty for one without; `page` is the address of Spark's own page, if any.
    `executors` says how many it has, on a cluster.
    """

    def __init__(
        self,
        sources: Sequence[str],
        page: str | None = None,
        executors: Callable[[], int] | None = None,
    ) -> None:
        self._sources = sources
        self._page = page
        self._executors = executors
        self._late = LateRows()
        self._seen = ""

    def new(self, query: StreamingQuery) -> Iterator[Metrics]:
        """The metrics of what was reported since the last call; Spark keeps the last hundred reports.

        As JSON, since pyspark's own objects ask the JVM for each field.
        """
        java = java_query(query)
        last = java.lastProgress()
        if last is None or last.timestamp() <= self._seen:
            return
        reports, found = java.recentProgress(), list[str]()
        for place in reversed(range(len(reports))):
            if reports[place].timestamp() <= self._seen:  # texts of one form, in UTC
                break
            found.append(reports[place].json())
        self._seen = last.timestamp()
        for report in map(orjson.loads, reversed(found)):
            self._late.note(report)
            yield metrics_of(report, self._sources, self._page)
        if self._executors is not None:
            yield self.standing()

    def standing(self) -> Metrics:
        """What is known without a report."""
        return {} if self._executors is None else {"spark.query": {"executors": Level(self._executors())}}

    def close(self) -> None:
        """The query has ended: nothing is left unsaid."""
        self._late.say()


def metrics_of(report: Mapping[str, Any], sources: Sequence[str], page: str | None = None) -> Metrics:
    """The metrics of one report: counters are additions, gauges what is now.

    A trigger without a batch has rates alone; its durations are those of looking for input.
    """
    found: dict[str, Mapping[str, MetricValue]] = {}
    phases = report.get("durationMs", {})
    query: dict[str, MetricValue] = {
        "input-rows": Count(int(report.get("numInputRows", 0))),
        **_rates(report),
    }
    if _EXECUTED in phases:
        query["batch-id"] = Level(int(report["batchId"]))
        query["batch-ms"] = Durations(1, float(phases.get("triggerExecution", 0)))
        found["spark.duration"] = {f"{phase}-ms": Level(int(ms)) for phase, ms in sorted(phases.items())}
    if watermark := report.get("eventTime", {}).get("watermark"):
        query["watermark-ms"] = Level(round(datetime.fromisoformat(watermark).timestamp() * 1000))
    if page:
        query["page"] = Level(page)
    operators = report.get("stateOperators", ())
    if operators:
        query["late-rows-dropped"] = Count(dropped_rows(report))
    found["spark.query"] = query
    for number, operator in enumerate(operators):
        found[f"spark.operator.{number}.{operator.get('operatorName', '')}"] = _operator(operator)
    for observed, row in report.get("observedMetrics", {}).items():
        if observed.startswith(EXPECTATION):
            found[observed] = {figure: Count(int(value)) for figure, value in row.items()}
    for number, source in enumerate(report.get("sources", ())):
        name = (sources[number] if number < len(sources) else "") or str(number)
        found[f"spark.source.{name}"] = {
            "input-rows": Count(int(source.get("numInputRows", 0))),
            **_rates(source),
        }
    return found


def _rates(of: Mapping[str, Any]) -> dict[str, MetricValue]:
    """Spark leaves out a rate that is no number."""
    return {
        "input-rows-per-second": Level(float(of.get("inputRowsPerSecond", 0.0))),
        "processed-rows-per-second": Level(float(of.get("processedRowsPerSecond", 0.0))),
    }


def _operator(operator: Mapping[str, Any]) -> dict[str, MetricValue]:
    return {
        "state-rows": Level(int(operator.get("numRowsTotal", 0))),
        "state-bytes": Level(int(operator.get("memoryUsedBytes", 0))),
        "rows-updated": Count(int(operator.get("numRowsUpdated", 0))),
        "late-rows-dropped": Count(int(operator.get("numRowsDroppedByWatermark", 0))),
    }
