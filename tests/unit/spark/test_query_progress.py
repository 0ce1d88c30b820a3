"""Spark's reports of a query's batches as metrics of its container, and on their way to readers."""

from __future__ import annotations

from typing import Any

from grete.container.metrics import ContainerMetrics
from grete.coordinator.progress import ReportedProgress
from grete.coordinator.task_metrics import reported_metrics
from grete.model.ids import JobId
from grete.spark.pipeline.query_progress import ProgressReader, metrics_of
from grete.testing.clock import ManualClock
from grete.wire.container_protocol import Heartbeat
from grete.wire.metric_values import Count, Durations, Level
from grete.wire.prometheus_text import encode

BATCH: dict[str, Any] = {
    "timestamp": "2026-11-22T12:00:01.000Z",
    "batchId": 7,
    "numInputRows": 40,
    "inputRowsPerSecond": 20.0,
    "processedRowsPerSecond": 80.5,
    "durationMs": {"addBatch": 400, "triggerExecution": 500, "walCommit": 20},
    "eventTime": {"watermark": "1970-01-01T00:00:30.000Z"},
    "stateOperators": [
        {
            "operatorName": "stateStoreSave",
            "numRowsTotal": 3,
            "numRowsUpdated": 2,
            "numRowsDroppedByWatermark": 1,
            "memoryUsedBytes": 4096,
        }
    ],
    "sources": [{"numInputRows": 30, "inputRowsPerSecond": 15.0}, {"numInputRows": 10}],
}
IDLE = {
    "timestamp": "2026-11-22T12:00:12.000Z",
    "batchId": 8,
    "numInputRows": 0,
    "durationMs": {"latestOffset": 2, "triggerExecution": 2},
}


class JavaReport:
    """As Spark's StreamingQueryProgress, of which this much is asked."""

    def __init__(self, timestamp: str, text: str) -> None:
        self._timestamp = timestamp
        self._text = text

    def timestamp(self) -> str:
        return self._timestamp

    def json(self) -> str:
        return self._text


class JavaQuery:
    """A query of Spark's that has made reports."""

    def __init__(self) -> None:
        self.reports: list[JavaReport] = []

    @property
    def _jsq(self) -> JavaQuery:
        return self

    def lastProgress(self) -> JavaReport | None:
        return self.reports[-1] if self.reports else None

    def recentProgress(self) -> list[JavaReport]:
        return self.reports[-100:]


def test_a_batch_has_rows_rates_phases_watermark_and_state() -> None:
    metrics = metrics_of(BATCH, ["local.in", ""])
    assert metrics["spark.query"] == {
        "input-rows": Count(40),
        "input-rows-per-second": Level(20.0),
        "processed-rows-per-second": Level(80.5),
        "batch-id": Level(7),
        "batch-ms": Durations(1, 500.0),
        "watermark-ms": Level(30_000),
        "late-rows-dropped": Count(1),
    }
    assert metrics["spark.duration"] == {
        "addBatch-ms": Level(400),
        "triggerExecution-ms": Level(500),
        "walCommit-ms": Level(20),
    }
    assert metrics["spark.operator.0.stateStoreSave"] == {
        "state-rows": Level(3),
        "state-bytes": Level(4096),
        "rows-updated": Count(2),
        "late-rows-dropped": Count(1),
    }
    assert metrics["spark.source.local.in"]["input-rows"] == Count(30)
    assert metrics["spark.source.1"]["input-rows"] == Count(10)


def test_a_trigger_without_a_batch_lets_rates_go_and_nothing_else() -> None:
    assert metrics_of(IDLE, []) == {
        "spark.query": {
            "input-rows": Count(0),
            "input-rows-per-second": Level(0.0),
            "processed-rows-per-second": Level(0.0),
        }
    }


def test_each_report_is_counted_once_however_often_it_is_looked_for() -> None:
    query: Any = JavaQuery()
    reader = ProgressReader(["local.in"])
    rows = 0

    def look() -> None:
        nonlocal rows
        for metrics in reader.new(query):
            value = metrics["spark.query"]["input-rows"]
            assert isinstance(value, Count)
            rows += value.value

    look()
    for second in range(1, 4):
        query.reports.append(JavaReport(f"2026-11-22T12:00:0{second}.000Z", f'{{"numInputRows":{second}}}'))
    look()
    look()
    query.reports.append(JavaReport("2026-11-22T12:00:04.000Z", '{"numInputRows":10}'))
    look()
    assert rows == 1 + 2 + 3 + 10


def test_they_reach_prometheus_and_the_document_of_the_job() -> None:
    clock = ManualClock()
    container, progress = ContainerMetrics("0", clock), ReportedProgress(clock)
    container.add_engine(metrics_of(BATCH, ["local.in", ""]))
    container.add_engine(metrics_of({**BATCH, "numInputRows": 2}, ["local.in", ""]))
    progress.record("0", Heartbeat(1, metrics=container.reported()))
    found = progress.by_container()
    lines = encode(reported_metrics(JobId("words"), found)).splitlines()
    of_query = 'job="words-1",container="0",task="",group="spark.query"'
    assert f'grete_counter_input_rows_total{{{of_query},name="input-rows"}} 42' in lines
    assert f'grete_gauge_watermark_ms{{{of_query},name="watermark-ms"}} 30000' in lines
    engine = found["0"].engine
    assert engine["query"]["input-rows"] == 42
    assert engine["query"]["batch-ms"] == 500.0
    assert engine["operator.0.stateStoreSave"]["state-rows"] == 3
    assert set(engine) == {"duration", "operator.0.stateStoreSave", "query", "source.1", "source.local.in"}


def test_the_address_of_sparks_own_page_is_told_and_is_no_sample_of_a_metric() -> None:
    clock = ManualClock()
    container, progress = ContainerMetrics("0", clock), ReportedProgress(clock)
    found = metrics_of(BATCH, ["local.in", ""], "http://driver:4040")
    container.add_engine({**found, "own": {"page": Level("http://driver:4040")}})
    progress.record("0", Heartbeat(1, metrics=container.reported()))
    assert progress.by_container()["0"].engine["query"]["page"] == "http://driver:4040"
    assert "own" not in container.reported().container or not container.reported().container["own"]
    assert "driver" not in encode(reported_metrics(JobId("words"), progress.by_container()))
