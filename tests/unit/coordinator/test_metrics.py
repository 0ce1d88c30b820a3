"""Metrics for Prometheus: the format, every family with HELP and TYPE, and where the numbers come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics_families
from prometheus_client.parser import text_string_to_metric_families

from grete.checkpoint.lag import JobLag, SspLag
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.job_model import Remembered, calculate
from grete.coordinator.lag import RecentLag
from grete.coordinator.metadata_manager import MetadataMetrics
from grete.coordinator.metrics import MetricFacts, job_metrics
from grete.coordinator.progress import ReportedProgress
from grete.coordinator.renewal import RenewalFigures
from grete.coordinator.state import Barriers, ContainerState, Failures, State
from grete.coordinator.view import View
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History
from grete.model.ids import ContainerId, JobId, SystemStream, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.clock import ManualClock
from grete.wire.container_protocol import Heartbeat
from grete.wire.prometheus_text import OPEN_METRICS, TEXT, Family, content_type, encode

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(text: str) -> Samples:
    """The samples as Prometheus' own library reads them; it takes every counter's name to end in `_total`."""
    assert text.endswith("\n")
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == text.count("# TYPE ") == text.count("# HELP ")
    return {(one.name, tuple(one.labels.items())): one.value for family in families for one in family.samples}


@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)), max_size=5))
def test_any_text_as_a_label_is_read_back(values: list[tuple[str, float]]) -> None:
    family = Family("x", "gauge", 'a "help"\nof \\ two lines')
    for text, value in values:
        family.add(value, label=text)
    expected = {
        ("x", (("label", text.encode("utf-8", "backslashreplace").decode()),)): float(value)
        for text, value in values
    }
    assert parse(encode([family])) == expected


@given(st.lists(st.tuples(st.text(), st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)), max_size=5))
def test_any_text_as_a_label_is_read_back_of_open_metrics(values: list[tuple[str, float]]) -> None:
    family = Family("x", "gauge", 'a "help"\nof \\ two lines')
    for text, value in dict(values).items():
        family.add(value, label=text)
    expected = {
        text.encode("utf-8", "backslashreplace").decode(): value for text, value in dict(values).items()
    }
    [read] = open_metrics_families(encode([family], OPEN_METRICS))
    assert read.documentation == 'a "help"\nof \\ two lines'
    if len(expected) == len(family.samples):
        assert {one.labels["label"]: one.value for one in read.samples} == expected


def test_open_metrics_have_the_same_names_and_the_trace_of_a_commit() -> None:
    clock = ManualClock()
    progress = ReportedProgress(clock)
    progress.record("0", Heartbeat(1, trace="ab" * 16, commit_seconds=2.0, last_commit_seconds=0.5))
    state, lag = State(RetryPolicy()), JobLag((SspLag(SSP, TaskName("Partition 3"), "41", "50", 8),))
    facts = MetricFacts(
        *(JobId("words"), MetadataMetrics(applicationAttemptCount=3), 5, state, 3, progress.by_container()),
        *(clock.monotonic_s(), lag, 2),
    )
    families = list(job_metrics(facts))
    plain, openly = encode(families), encode(families, OPEN_METRICS)
    assert openly.endswith("# EOF\n")
    read = [one for family in open_metrics_families(openly) for one in family.samples]
    attempts = "job_coordinator_manager_applicationAttemptCount"
    assert {(one.name, tuple(one.labels.items())): one.value for one in read} == {
        (attempts if name == f"{attempts}_total" else name, labels): value  # as the other reader calls it
        for (name, labels), value in parse(plain).items()
    }
    [seconds] = [one for one in read if one.name == "grete_commit_seconds_total"]
    assert seconds.exemplar is not None
    assert (seconds.exemplar.labels, seconds.exemplar.value) == ({"trace_id": "ab" * 16}, 0.5)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html", TEXT),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", OPEN_METRICS),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
            OPEN_METRICS,
        ),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.3", TEXT),
        ("application/openmetrics-text;version=0.0.1,*/*;q=0.1", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=much", TEXT),
        (";;,,=", TEXT),
    ],
)
def test_a_reader_has_the_form_that_it_wants_most(accept: str, form: str) -> None:
    assert content_type(accept) == form


def test_numbers_that_are_none_are_written_as_prometheus_writes_them() -> None:
    family = Family("x", "gauge", "")
    for value in (float("inf"), float("-inf"), True, 2**60, 0.5):
        family.add(value)
    assert [line.split()[1] for line in encode([family]).splitlines()[2:]] == [
        "+Inf",
        "-Inf",
        "1",
        str(2**60),
        "0.5",
    ]


COMMITS = {"commits": 4, "commit_seconds": 1.25, "last_commit_seconds": 0.5, "cpu_seconds": 7.5}
SSP = SystemStreamPartition("local", 'in"\\', 3)


def test_what_the_loop_containers_and_checkpoints_know_is_exported() -> None:
    clock = ManualClock()
    progress = ReportedProgress(clock)
    progress.record("0", Heartbeat(6))
    for batch in range(5):
        progress.record("0", Heartbeat(7, records=100 * batch, batch_id=batch, **COMMITS))
        clock.advance(2)
    state = State(
        RetryPolicy(),
        launches=4,
        barriers=Barriers(started=4, ended=3, timed_out=1, began_s=7, last_s=2.5),
        containers={
            ContainerId("0"): ContainerState(launch=4, running=True, failures=Failures(count=2)),
            ContainerId("1"): ContainerState(launch=2, given_up=True),
        },
    )
    lag = JobLag((SspLag(SSP, TaskName("Partition 3"), "41", "50", 8),))
    metadata = MetadataMetrics(applicationAttemptCount=3)
    facts = MetricFacts(
        JobId("words"),
        metadata,
        5,
        state,
        3,
        progress.by_container(),
        clock.monotonic_s(),
        lag,
        2,
        events=["a", "a"],
        exits=["killed", "fenced", "killed"],
        disks={"home": (10, 100)},
        certificate_s=86_400.0,
        processors=2,
        lease=RenewalFigures(renewals=7, failures=2, left_s=3.5),
    )
    found = parse(encode(job_metrics(facts)))
    ssp = (("task", "Partition 3"), ("system", "local"), ("stream", 'in"\\'), ("partition", "3"))
    zero = (("container", "0"),)
    expected: Samples = {
        ("job_coordinator_manager_applicationAttemptCount_total", ()): 3,
        ("grete_leader_epoch", ()): 5,
        ("grete_is_leader", ()): 1,
        ("grete_lease_seconds", ()): 3.5,
        ("grete_lease_renewals_total", ()): 7,
        ("grete_lease_renewal_failures_total", ()): 2,
        ("grete_barriers_started_total", ()): 4,
        ("grete_barriers_ended_total", ()): 3,
        ("grete_barriers_timed_out_total", ()): 1,
        ("grete_rebalance_seconds", ()): 2.5,
        ("grete_live_processors", ()): 2,
        ("grete_container_count", ()): 3,
        ("grete_running_containers", ()): 1,
        ("grete_needed_containers", ()): 1,
        ("grete_failed_containers", ()): 2,
        ("grete_job_healthy", ()): 0,
        ("grete_quarantined_records", ()): 2,
        ("grete_history_events", (("event", "a"),)): 2,
        ("grete_container_exits", (("meaning", "killed"),)): 2,
        ("grete_container_exits", (("meaning", "fenced"),)): 1,
        ("grete_disk_free_bytes", (("folder", "home"),)): 10,
        ("grete_disk_size_bytes", (("folder", "home"),)): 100,
        ("grete_http_certificate_seconds", ()): 86_400,
        ("grete_process_envelopes_total", zero): 400,
        ("grete_process_envelopes_per_second", zero): 50,
        ("grete_batch_id", zero): 4,
        ("grete_commit_calls_total", zero): 4,
        ("grete_commit_seconds_total", zero): 1.25,
        ("grete_cpu_seconds_total", zero): 7.5,
        ("grete_last_commit_seconds", zero): 0.5,
        ("grete_container_restarts_total", zero): 1,
        ("grete_heartbeat_age_seconds", zero): 2,
        ("grete_messages_behind_high_watermark", ssp): 8,
        ("grete_checkpointed_offset", ssp): 41,
        ("grete_lag_messages", ()): 8,
    }
    assert {key: found.get(key) for key in expected} == expected


def test_the_rate_is_of_this_incarnation_and_the_last_minute() -> None:
    clock = ManualClock()
    progress = ReportedProgress(clock)

    def rate(records: int, epoch: int, after_s: float = 1) -> float:
        clock.advance(after_s)
        progress.record("0", Heartbeat(epoch, records=records))
        return progress.by_container()["0"].records_per_s

    assert [rate(0, 1), rate(100, 1), rate(200, 1)] == [0, 100, 100]
    assert [rate(0, 2), rate(30, 2)] == [0, 30]
    assert rate(30, 2, after_s=60) == 0


@pytest.fixture
def view(home: Path, system: LocalSystem) -> View:
    system.create_stream(StreamSpec("in", 2))
    system.append("in", (Message(None, b"v", 1, partition=i % 2) for i in range(10)))
    job, task = JobId("orders"), TaskName("Partition 0")
    commits = {task: TaskCommit({SystemStreamPartition("local", "in", 0): "1"})}
    system.checkpoint_log(checkpoint_log_name(job)).append(commit_entries(commits, grouper="g"))
    config = {"job.name": "orders", "task.inputs": "local.in", "systems.local.samza.offset.default": "oldest"}
    stream = CoordinatorStream(MemoryKeyedLog(SystemClock()), SystemClock(), source="test")
    stream.write_config(config, run_id="r")
    History(stream).append("deployment")
    model = calculate(Settings.of(config), {SystemStream("local", "in"): 2}, Remembered()).model
    made = View(job, stream, MetadataMetrics(), "r", 1)
    made.containers.serve(Settings.of(config), model)
    return made


def test_a_coordinator_measures_lag_from_checkpoints_and_streams(view: View) -> None:
    assert view.lag()["tasks"] == {"Partition 0": 3, "Partition 1": 5}
    samples = parse(view.metrics())
    assert samples["grete_lag_messages", ()] == 8
    assert samples["grete_history_events", (("event", "deployment"),)] == 1


def test_few_series_have_the_sums_and_nothing_of_a_partition_or_a_task(view: View) -> None:
    whole, few = parse(view.metrics()), parse(view.metrics(each_partition=False))
    assert few["grete_lag_messages", ()] == 8
    assert {name for name, _ in whole} - {name for name, _ in few} >= {"grete_messages_behind_high_watermark"}
    assert not [labels for _, labels in few if dict(labels).get("task") or "partition" in dict(labels)]
    assert len(few) < len(whole)


def test_a_job_model_is_encoded_once_and_again_when_it_changes(view: View) -> None:
    first = view.job_model_document()
    assert view.job_model_document() is first
    config = {"job.name": "orders", "task.inputs": "local.in", "db.password": "hunter2hunter2"}
    settings = Settings.of(config)
    view.containers.serve(settings, calculate(settings, {SystemStream("local", "in"): 4}, Remembered()).model)
    second = view.job_model_document()
    assert b"Partition 3" in second
    assert b"hunter2" not in second


def test_lag_that_takes_long_to_measure_is_measured_less_often() -> None:
    clock, measured = ManualClock(), list[float]()

    def measure() -> JobLag:
        measured.append(clock.monotonic_s())
        clock.advance(0.5)
        return JobLag(())

    recent = RecentLag(measure, clock)
    for _ in range(100):
        recent.get()
        clock.advance(0.25)
    assert measured == [0, 5.5, 11, 16.5, 22]


def test_without_a_stream_the_lag_is_unknown_and_the_other_metrics_are_there(view: View, home: Path) -> None:
    (home / "local" / "streams.db").unlink()
    samples = parse(view.metrics())
    assert ("grete_lag_messages", ()) not in samples
    assert samples["grete_leader_epoch", ()] == 1


DOCUMENTED = re.compile(r"^\| `(\w+)`", re.MULTILINE)


def test_every_metric_is_documented_and_every_documented_metric_exists(view: View) -> None:
    observing = (Path(__file__).parents[3] / "docs" / "observing.md").read_text()
    section = observing.split("## Metrics")[1].split("\n## ")[0]
    families = re.findall(r"^# TYPE (\w+)", view.metrics(), re.MULTILINE)
    assert DOCUMENTED.findall(section) == families
