"""Metrics of applications and of tasks' calls: from the task that counts to the container that sums up."""

from __future__ import annotations

import json
import math

import pytest

import grete
from grete.container.metrics import ContainerMetrics
from grete.coordinator.progress import ReportedProgress
from grete.coordinator.task_metrics import reported_metrics
from grete.errors import IllegalStateError, ProcessingError
from grete.model.ids import JobId, TaskName
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.metrics import TaskMetrics
from grete.testing.clock import ManualClock
from grete.testing.job import JobUnderTest
from grete.wire import strict_json
from grete.wire.container_protocol import Heartbeat, convert, document
from grete.wire.metric_values import CONTAINER_GROUP, TASK_GROUP, Count, Durations, Level
from grete.wire.prometheus_text import encode

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}
TASK = "Partition 0"


class Measuring(grete.StreamTask):
    """Counts, and measures what the message says."""

    def init(self, context: grete.TaskContext) -> None:
        self.seen = context.metrics.counter("seen")
        self.largest = context.metrics.gauge("largest", -1)
        self.sizes = context.metrics.timer("size", group="sizes")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        self.seen.inc()
        if envelope.message < 0:
            raise ValueError("negative")
        self.largest.set(max(self.largest.value, envelope.message))  # type: ignore[type-var]
        self.sizes.update(envelope.message)
        collector.send("local.out", envelope.message)

    def window(self, collector: grete.MessageCollector, coordinator: grete.TaskCoordinator) -> None:
        pass


def test_an_applications_metrics_are_those_of_all_its_batches() -> None:
    with JobUnderTest(Measuring, CONFIG) as job:
        for batch in ([4, 2], [9]):
            for size in batch:
                job.send("local.in", size)
            job.run()
        found = job.metrics(TASK)
        assert found["application"] == {"seen": 3, "largest": 9}
        assert found["sizes"] == {"size": 5.0}


def test_calls_are_counted_under_samzas_names() -> None:
    with JobUnderTest(Measuring, {**CONFIG, "task.window.ms": "10"}) as job:
        for size in range(3):
            job.send("local.in", size)
        job.run()
        job.clock.advance(1)
        job.run()
        own = job.metrics(TASK)[TASK_GROUP]
        assert own == {
            "process-calls": 3,
            "window-calls": 1,
            "timer-calls": 0,
            "send-calls": 3,
            "restored-messages": 0,
            "restore-ns": 0.0,
            "process-ns": 0.0,  # the test's clock stands still
            "window-ns": 0.0,
            "timer-ns": 0.0,
            "commit-calls": 2,
            "commit-ns": own["commit-ns"],
            "last-commit-ns": own["last-commit-ns"],
        }
        assert own["commit-ns"] > 0
        container = job.metrics()[CONTAINER_GROUP]
        assert (container["process-envelopes"], container["process-calls"]) == (3, 3)
        assert (container["commit-calls"], container["window-calls"]) == (2, 1)


def test_an_attempt_that_failed_counts_nothing_and_a_restart_begins_anew() -> None:
    with JobUnderTest(Measuring, CONFIG) as job:
        job.send("local.in", 1)
        job.run()
        job.send("local.in", -1)
        with pytest.raises(ProcessingError):
            job.run()
        assert job.metrics(TASK)["application"]["seen"] == 1
        job.restart(
            config={"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
        )
        job.run()
        assert job.metrics(TASK)["application"] == {"seen": 1, "largest": -1}


def test_a_task_that_goes_on_in_another_worker_adds_to_what_it_had() -> None:
    clock = ManualClock()
    container = ContainerMetrics("0", clock)
    for _ in range(2):
        worker = TaskMetrics(clock)
        worker.counter("seen").inc(5)
        worker.counter("set").set(7)
        outcome = BatchOutcome(records=5, metrics={TaskName(TASK): worker.take()})
        container.add(outcome)
    assert container.snapshot()[f"TaskName-{TASK}"]["application"] == {"seen": 10, "set": 7}


def test_what_did_not_change_is_not_reported_again() -> None:
    metrics = TaskMetrics(ManualClock())
    counter, gauge, timer = metrics.counter("c"), metrics.gauge("g"), metrics.timer("t")
    first = metrics.take()
    assert first["application"] == {"c": Count(0), "g": Level(0), "t": Durations(0, 0.0)}
    assert metrics.take() == {}
    counter.dec(2)
    gauge.set("much")
    timer.update(1.5)
    timer.update(-1)
    timer.update(math.nan)
    assert metrics.take() == {"application": {"c": Count(-2), "g": Level("much"), "t": Durations(1, 1.5)}}


def test_the_same_name_is_the_same_metric_and_another_kind_of_it_is_refused() -> None:
    metrics = TaskMetrics(ManualClock())
    assert metrics.counter("a") is metrics.counter("a")
    assert metrics.counter("a") is not metrics.counter("a", group="other")
    with pytest.raises(IllegalStateError, match="another kind"):
        metrics.gauge("a")


def test_names_values_and_numbers_of_metrics_are_bounded() -> None:
    metrics = TaskMetrics(ManualClock())
    for name in ("", "x" * 201, "a\nb", "\ud800"):
        with pytest.raises(IllegalStateError, match="cannot name"):
            metrics.counter(name)
    with pytest.raises(TypeError, match="not list"):
        metrics.gauge("g").set([])  # type: ignore[arg-type]
    own = sum(map(len, metrics.take().values()))
    for number in range(1_000 - own):
        metrics.counter(f"key {number}")
    with pytest.raises(IllegalStateError, match=r"at most 1000 .* store"):
        metrics.counter("key 1000")


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        (math.nan, None),
        (math.inf, None),
        (2**70, 2**63 - 1),
        ("\ud800", "?"),
        ("x" * 2_000, "x" * 1_000),
        (True, True),
    ],
)
def test_no_value_of_a_gauge_can_break_a_report(value: float | str, reported: object) -> None:
    metrics = TaskMetrics(ManualClock())
    metrics.gauge("g", value)
    assert metrics.take()["application"]["g"] == Level(reported)  # type: ignore[arg-type]


def test_the_average_of_a_timer_is_that_of_five_minutes() -> None:
    clock = ManualClock()
    container = ContainerMetrics("0", clock)
    timed = {}
    for second in range(400):
        value = 100.0 if second < 50 else 2.0
        container.add(BatchOutcome(metrics={TaskName(TASK): {"g": {"t": Durations(1, value)}}}))
        timed[second] = container.snapshot()[f"TaskName-{TASK}"]["g"]["t"]
        clock.advance(1)
    assert (timed[49], timed[399]) == (100.0, 2.0)


def test_tasks_that_a_container_gave_away_are_no_longer_in_its_metrics() -> None:
    container = ContainerMetrics("0", ManualClock())
    container.add(BatchOutcome(metrics={TaskName(name): {} for name in ("a", "b")}))
    container.keep({TaskName("b")})
    assert list(container.snapshot()) == ["samza-container-0", "TaskName-b"]


def test_more_metrics_than_a_request_holds_cost_those_of_the_tasks(caplog: pytest.LogCaptureFixture) -> None:
    container = ContainerMetrics("0", ManualClock())
    many = {f"{'name' * 40} {number}": Count(1) for number in range(900)}
    container.add(BatchOutcome(records=7, metrics={TaskName(f"t{n}"): {"g": many} for n in range(5)}))
    assert container.reported().tasks == {}
    report = container.reported()
    assert report.container[CONTAINER_GROUP]["process-envelopes"] == Count(7)
    assert [record.getMessage() for record in caplog.records] == [
        "the metrics of 5 tasks are more than 524288 bytes: /metrics shows those of the container only"
    ]


def test_prometheus_gets_numbers_with_job_container_task_and_group() -> None:
    clock = ManualClock()
    container, progress = ContainerMetrics("0", clock), ReportedProgress(clock)
    task = TaskMetrics(clock)
    task.counter("words-seen", group="my.Words").inc(3)
    task.gauge("mood").set("good")
    task.timer("lookup").update(1500)
    container.add(BatchOutcome(records=3, metrics={TaskName(TASK): task.take()}))
    sent = Heartbeat(1, metrics=container.reported())
    received = convert(strict_json.loads(over_http(sent)), Heartbeat)
    progress.record("0", received)
    progress.record("0", Heartbeat(1))
    lines = encode(reported_metrics(JobId("words"), progress.by_container())).splitlines()
    of_task = f'job="words-1",container="0",task="{TASK}"'
    assert f'grete_counter_words_seen_total{{{of_task},group="my.Words",name="words-seen"}} 3' in lines
    assert f'grete_timer_lookup_count{{{of_task},group="application",name="lookup"}} 1' in lines
    assert f'grete_timer_lookup_sum{{{of_task},group="application",name="lookup"}} 1500.0' in lines
    of_container = f'job="words-1",container="0",task="",group="{CONTAINER_GROUP}"'
    assert f'grete_counter_process_envelopes_total{{{of_container},name="process-envelopes"}} 3' in lines
    assert not [line for line in lines if "mood" in line]


def over_http(heartbeat: Heartbeat) -> bytes:
    """As it goes over HTTP."""
    return json.dumps(document(heartbeat), allow_nan=False, ensure_ascii=False).encode()
