"""Findings of monitors, once each, and failures on their thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from grete.checkpoint.latest_offsets import Offsets
from grete.config.rewriters import RegexInputRewriter, input_regexes
from grete.config.settings import Settings
from grete.coordinator.job_model import Remembered, calculate
from grete.coordinator.monitors.containers import (
    ContainerFacts,
    ContainerLivenessMonitor,
    QueryProgressMonitor,
)
from grete.coordinator.monitors.findings import (
    Finding,
    LagMeasured,
    PartitionChange,
    PartitionsChanged,
    QueryStuck,
    SilentContainer,
    StreamsChanged,
)
from grete.coordinator.monitors.inputs import InputRegexMonitor, PartitionCountMonitor
from grete.coordinator.monitors.thread import MonitorThread, Poll
from grete.coordinator.monitors.watch import Monitors, Watched
from grete.model.ids import ContainerId, SystemStream, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.admin import PartitionOffsets
from grete.systems.local.system import LocalSystem, Message
from grete.testing.clock import ManualClock

IN, MORE = SystemStream("local", "in"), SystemStream("local", "more")
C0 = ContainerId("0")


# --- inputs ---


def test_a_stream_that_grew_is_found_once_and_again_when_it_grows_more() -> None:
    monitor = PartitionCountMonitor({IN: 2, MORE: 4})
    assert monitor.observe({IN: 2, MORE: 4}, 0) == ()
    assert monitor.observe({IN: 4, MORE: 4}, 1) == (PartitionsChanged((PartitionChange(IN, 2, 4),), ()),)
    assert monitor.observe({IN: 4, MORE: 4}, 2) == ()
    assert monitor.observe({IN: 8, MORE: 4}, 3) == (PartitionsChanged((PartitionChange(IN, 2, 8),), ()),)
    assert monitor.counts == {IN: 8, MORE: 4}


def test_a_stream_that_shrank_is_distinguished_from_one_that_grew() -> None:
    (finding,) = PartitionCountMonitor({IN: 2, MORE: 4}).observe({IN: 3, MORE: 1}, 0)
    assert finding == PartitionsChanged((PartitionChange(IN, 2, 3),), (PartitionChange(MORE, 4, 1),))


def test_a_stream_that_is_whole_again_is_no_finding_and_the_next_change_is() -> None:
    monitor = PartitionCountMonitor({IN: 2})
    assert len(monitor.observe({IN: 1}, 0)) == 1
    assert monitor.observe({IN: 2}, 1) == ()
    assert len(monitor.observe({IN: 1}, 2)) == 1


REGEX = {
    "job.config.rewriters": "orders",
    "job.config.rewriter.orders.class": "org.apache.samza.config.RegExTopicGenerator",
    "job.config.rewriter.orders.system": "local",
    "job.config.rewriter.orders.regex": "orders-[a-z]+",
}


def test_a_new_stream_must_match_the_regex_as_a_whole_and_be_no_input_yet() -> None:
    monitor = InputRegexMonitor(input_regexes(REGEX), [SystemStream("local", "orders-eu")])
    names = ["orders-eu", "orders-us", "orders-us-old", "other"]
    assert monitor.observe({"local": names}, 0) == (StreamsChanged((SystemStream("local", "orders-us"),)),)
    assert monitor.observe({"local": names}, 1) == ()
    assert monitor.new_streams == {"local": 1}
    (again,) = monitor.observe({"local": [*names, "orders-asia"]}, 2)
    assert again.found == (SystemStream("local", "orders-asia"), SystemStream("local", "orders-us"))


def test_a_new_stream_that_goes_away_is_forgotten() -> None:
    monitor = InputRegexMonitor(input_regexes(REGEX), [])
    assert len(monitor.observe({"local": ["orders-us"]}, 0)) == 1
    assert monitor.observe({"local": []}, 1) == ()
    assert len(monitor.observe({"local": ["orders-us"]}, 2)) == 1


def test_what_the_job_writes_itself_never_becomes_its_input() -> None:
    config = {
        **REGEX,
        "job.name": "orders",
        "job.config.rewriter.orders.regex": ".*",
        "stores.totals.factory": "grete.store.sqlite",
        "stores.other.changelog": "elsewhere.log",
        "task.outputs": "local.sums, elsewhere.in",
        "task.poison.dead-letter.stream": "local.dead",
    }
    names = ["orders-1-totals-changelog", "log", "sums", "dead", "in"]
    (finding,) = InputRegexMonitor(input_regexes(config), []).observe({"local": names}, 0)
    assert finding.found == (SystemStream("local", "in"), SystemStream("local", "log"))
    rewritten = RegexInputRewriter(lambda system, _: names).rewrite("orders", config)
    assert rewritten["task.inputs"] == "local.in,local.log"


def test_rewriters_of_other_kinds_are_no_regexes() -> None:
    assert input_regexes({**REGEX, "job.config.rewriter.orders.class": "my_job:Rewriter"}) == []
    assert input_regexes({}) == []


# --- containers ---


def test_a_container_is_silent_when_its_last_heartbeat_is_old_and_that_is_reported_once() -> None:
    monitor = ContainerLivenessMonitor()
    facts = {C0: ContainerFacts(7, heartbeat_s=10)}
    assert monitor.observe(facts, 69, silent_after_s=60) == ()
    assert monitor.observe(facts, 70, silent_after_s=60) == (SilentContainer(C0, 7, 60),)
    assert monitor.observe(facts, 80, silent_after_s=60) == ()
    heard = {C0: ContainerFacts(7, heartbeat_s=81)}
    assert monitor.observe(heard, 100, silent_after_s=60) == ()
    assert monitor.observe(heard, 141, silent_after_s=60) == (SilentContainer(C0, 7, 60),)


def test_a_container_that_never_spoke_is_silent_from_when_it_was_launched() -> None:
    monitor = ContainerLivenessMonitor()
    assert monitor.observe({C0: ContainerFacts(7)}, 100, silent_after_s=60) == ()
    assert monitor.observe({C0: ContainerFacts(8)}, 130, silent_after_s=60) == ()
    assert monitor.observe({C0: ContainerFacts(8)}, 189, silent_after_s=60) == ()
    assert monitor.observe({C0: ContainerFacts(8)}, 190, silent_after_s=60) == (SilentContainer(C0, 8, 60),)


def test_a_container_that_its_cluster_manager_has_not_begun_is_not_silent_however_long_that_takes() -> None:
    """One in a full queue was killed after a minute and asked for anew, as the last in the queue each time."""
    monitor = ContainerLivenessMonitor()
    awaited = {C0: ContainerFacts(7, is_awaited=True, message="the queue is full")}
    assert monitor.observe({C0: ContainerFacts(7)}, 0, silent_after_s=60) == ()
    for now_s in (1, 61, 10_000):
        assert monitor.observe(awaited, now_s, silent_after_s=60) == ()
    assert monitor.observe({C0: ContainerFacts(7)}, 10_001, silent_after_s=60) == ()
    assert monitor.observe({C0: ContainerFacts(7)}, 10_060, silent_after_s=60) == ()
    begun = monitor.observe({C0: ContainerFacts(7)}, 10_061, silent_after_s=60)
    assert begun == (SilentContainer(C0, 7, 60),)


STUCK = ContainerFacts(7, state="running", batch_id=3, lag=12)


def look(monitor: QueryProgressMonitor, seen: ContainerFacts, now_s: float) -> tuple[QueryStuck, ...]:
    return monitor.observe({C0: replace(seen, heartbeat_s=now_s - 1)}, now_s, stuck_after_s=60)


def test_a_query_with_lag_whose_batch_stays_the_same_is_stuck_and_that_is_reported_once() -> None:
    monitor = QueryProgressMonitor()
    assert look(monitor, STUCK, 0) == ()
    assert look(monitor, STUCK, 59) == ()
    assert look(monitor, replace(STUCK, lag=99), 60) == (QueryStuck(C0, 7, 60, batch_id=3, lag=99),)
    assert look(monitor, STUCK, 200) == ()
    assert look(monitor, replace(STUCK, batch_id=4), 201) == ()
    assert look(monitor, replace(STUCK, batch_id=4), 261) == (QueryStuck(C0, 7, 60, batch_id=4, lag=12),)


@pytest.mark.parametrize(
    "between",
    [{"lag": 0}, {"lag": None}, {"batch_id": 4}, {"launch": 8}, {"state": "starting"}],
    ids=["no lag", "lag unknown", "another batch", "another incarnation", "starting"],
)
def test_the_time_starts_again_when_there_was_nothing_to_wait_for(between: dict[str, object]) -> None:
    monitor = QueryProgressMonitor()
    look(monitor, STUCK, 0)
    look(monitor, replace(STUCK, **between), 30)  # type: ignore[arg-type] # the names are the table's above
    assert look(monitor, STUCK, 60) == ()
    assert look(monitor, STUCK, 119) == ()
    assert len(look(monitor, STUCK, 120)) == 1


def test_a_container_that_sends_no_heartbeats_is_not_called_stuck() -> None:
    monitor = QueryProgressMonitor()
    look(monitor, STUCK, 0)
    assert monitor.observe({C0: replace(STUCK, heartbeat_s=5)}, 100, stuck_after_s=60) == ()


# --- the thread ---


def test_a_monitor_that_fails_is_shown_while_it_fails_logged_once_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, found = ManualClock(), list[Finding]()
    broken = [True]

    def observe(now_s: float) -> tuple[Finding, ...]:
        if broken[0]:
            raise RuntimeError("the broker is away")
        return ()

    silent = SilentContainer(C0, 1, 2.0)
    polls = [Poll("a", lambda: 10, observe), Poll("b", lambda: 10, lambda now_s: (silent,))]
    thread = MonitorThread(polls, clock, found.append)
    for _ in range(3):
        clock.advance(10)
        thread.tick()
    assert found == [silent] * 3
    assert thread.problems == {"a": "RuntimeError: the broker is away"}
    assert [r.getMessage() for r in caplog.records if "the broker is away" in r.getMessage()] == [
        "monitor a cannot look, and tries again: RuntimeError: the broker is away"
    ]
    broken[0] = False
    clock.advance(10)
    thread.tick()
    assert thread.problems == {}


def test_an_interval_takes_effect_without_a_restart_and_zero_is_never() -> None:
    clock, looks, interval = ManualClock(), list[float](), [0.0]

    def observe(now_s: float) -> tuple[Finding, ...]:
        looks.append(now_s)
        return ()

    thread = MonitorThread([Poll("a", lambda: interval[0], observe)], clock, lambda finding: None)
    for interval_s in (0.0, -1.0, 5.0, 5.0, 100.0):
        interval[0] = interval_s
        clock.advance(5)
        thread.tick()
    assert looks == [15.0, 20.0]


def test_a_thread_ends_when_it_is_closed_and_what_is_not_started_may_be_closed() -> None:
    looked = threading.Event()
    clock = ManualClock()

    def observe(now_s: float) -> tuple[Finding, ...]:
        looked.set()
        return ()

    thread = MonitorThread([Poll("a", lambda: 0.5, observe)], clock, lambda finding: None)
    thread.start()
    assert looked.wait(10)
    thread.close()
    assert not [t for t in threading.enumerate() if t.name == "monitors"]
    MonitorThread([], clock, lambda finding: None).close()


# --- all of them, over a real system ---

CONFIG = {
    **REGEX,
    "task.inputs": "local.orders-eu",
    "systems.local.samza.offset.default": "oldest",
    "job.coordinator.monitor-partition-change.frequency.ms": "5000",
    "job.coordinator.monitor-input-regex.frequency.ms": "5000",
    "job.coordinator.monitor-lag.frequency.ms": "5000",
}


def test_all_monitors_read_a_real_system_and_report_what_changed(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("orders-eu", 2))
    stream = SystemStream("local", "orders-eu")
    model = calculate(Settings.of(CONFIG), {stream: 2}, Remembered()).model
    commits: dict[TaskName, Offsets] = {}
    containers: dict[ContainerId, ContainerFacts] = {}
    clock, found = ManualClock(), list[Finding]()
    watched = Watched(
        settings=lambda: Settings.of(CONFIG),
        model=model,
        modelled={stream: 2},
        systems={"local": system},
        checkpoints=lambda: commits,
        containers=lambda: containers,
    )
    monitors = Monitors(watched, clock, found.append)

    def step(seconds_s: float = 5) -> list[Finding]:
        found.clear()
        clock.advance(seconds_s)
        monitors.tick()
        return [finding for finding in found if not isinstance(finding, LagMeasured)]

    assert step() == []
    system.append("orders-eu", (Message(None, b"v", 1, partition=i % 2) for i in range(10)))
    commits[TaskName("Partition 0")] = {SystemStreamPartition("local", "orders-eu", 0): "1"}
    assert step() == []
    assert monitors.lag is not None
    assert (monitors.lag.total, monitors.lag.by_task) == (8, {"Partition 0": 3, "Partition 1": 5})

    system.create_stream(StreamSpec("orders-us", 1))
    system.ensure_stream(StreamSpec("orders-eu", 4))
    assert step() == [
        PartitionsChanged((PartitionChange(stream, 2, 4),), ()),
        StreamsChanged((SystemStream("local", "orders-us"),)),
    ]
    assert step() == []

    def heartbeat() -> Mapping[ContainerId, ContainerFacts]:
        return {C0: ContainerFacts(1, clock.monotonic_s(), "running", 3)}

    containers.update(heartbeat())
    assert step(1) == []
    containers.update(heartbeat())
    assert step(599) == [SilentContainer(C0, 1, 599)]
    containers.update(heartbeat())
    (stuck,) = step(1)
    assert stuck == QueryStuck(C0, 1, 600, batch_id=3, lag=8)
    assert monitors.problems == {}


class OneAway(LocalSystem):
    """Partition 1 is unreachable."""

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        return {**self.offsets(stream), 1: None}


def test_an_unreachable_partition_is_a_problem_that_names_it(tmp_path: Path) -> None:
    with closing(OneAway(tmp_path, ManualClock())) as system:
        system.create_stream(StreamSpec("in", 2))
        config = {"task.inputs": "local.in"}
        model = calculate(Settings.of(config), {IN: 2}, Remembered()).model
        watched = Watched(lambda: Settings.of(config), model, {IN: 2}, {"local": system}, dict, dict)
        monitors = Monitors(watched, ManualClock(), list[Finding]().append)
        monitors.tick()
        assert "no broker answers for local.in.1" in monitors.problems["lag"]
        assert monitors.lag is not None
        assert monitors.lag.total is None


def test_a_stream_that_is_gone_is_a_problem_that_is_shown_and_the_others_are_watched(
    system: LocalSystem,
) -> None:
    system.create_stream(StreamSpec("in", 2))
    config = {"task.inputs": "local.in,local.more"}
    model = calculate(Settings.of(config), {IN: 1, MORE: 1}, Remembered()).model
    clock, found = ManualClock(), list[Finding]()
    watched = Watched(lambda: Settings.of(config), model, {IN: 1, MORE: 1}, {"local": system}, dict, dict)
    monitors = Monitors(watched, clock, found.append)
    for _ in range(2):
        clock.advance(300)
        monitors.tick()
    assert [f for f in found if isinstance(f, PartitionsChanged)] == [
        PartitionsChanged((PartitionChange(IN, 1, 2),), ())
    ]
    assert "'more'" in monitors.problems["partition-count"]
    assert monitors.lag is not None
    assert (monitors.lag.total, monitors.lag.missing) == (None, (MORE,))
