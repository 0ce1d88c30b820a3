"""Processes that share a job as stream processors: they join, leave and die, and no record is lost or done twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.fault.test_standing_by import election
from tests.fault.test_standing_by import own_azurite as own_azurite
from tests.support.failing import FAILS
from tests.support.shared_job import TTL_S, SharedJob

import grete
from grete.cli.main import main
from grete.container.without_spark import run_container
from grete.coordination.cells import change
from grete.embedded.orders import order_cell, report_cell
from grete.errors import ConfigError, IdTaken, IllegalStateError, MembersElsewhere
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900 if os.environ.get("GRETE_NIGHTLY") == "1" else 240)]
BY_NIGHT = pytest.mark.nightly
AWAY_S = 300 if os.environ.get("GRETE_NIGHTLY") == "1" else 4 * TTL_S
FULL = "inject=pwrite64:error=ENOSPC:when=40..60"
"""Of the writes of each thread into the streams' write-ahead log."""
LOCAL = {"job.coordinator.system": "local"}
MakeJob = Callable[..., SharedJob]


@pytest.fixture
def make_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeJob]:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    made: list[SharedJob] = []

    def make(settings: Mapping[str, str] | None = None, *, partitions: int = 6) -> SharedJob:
        made.append(SharedJob(tmp_path, {**LOCAL, **(settings or {})}, partitions=partitions))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(
    "backend",
    [
        "zookeeper",
        *(pytest.param(one, marks=BY_NIGHT) for one in ("sqlite", "kafka", "kubernetes", "azure")),
    ],
)
def test_processors_divide_the_tasks_as_they_join_and_die(
    backend: str, make_job: MakeJob, request: pytest.FixtureRequest
) -> None:
    """The leader is killed, then the one that succeeds it leaves in order; the last one ends the job."""
    job = make_job(election(backend, request))
    with job.counting.fed(300):
        job.running("a", "b")
        job.leader().kill()
        job.shares(1)
        [last] = job.running("c")
        [other] = {*job.living()} - {last}
        assert other.ends() == 0
        job.shares(1)
    job.counted()
    assert job.state() == "running"
    assert last.ends() == 0
    assert job.state() == "stopped", "the last one writes the terminal state"
    assert other.said[-2:] == last.said[-2:] == ["after_stop", "STOPPED"]
    assert last.said.count("after_start") == 1


def test_a_processor_beyond_the_tasks_waits_and_takes_the_place_of_one_that_died(make_job: MakeJob) -> None:
    job = make_job({"job.debounce.time.ms": "60000"}, partitions=1)
    [first] = job.running("a")
    spare = job.join("b")
    spare.has("STARTED")
    job.counting.send(100)
    job.counted()
    first.kill()
    job.counting.send(100)
    spare.has("RUNNING")
    job.counted()
    assert "reconfigured" not in job.events(), "no model was calculated for that"


def test_a_processor_that_stood_still_for_longer_than_its_lease_writes_nothing_more(
    make_job: MakeJob,
) -> None:
    job = make_job()
    with job.counting.fed(300):
        job.running("a", "b")
        leader = job.leader()
        [paused] = [one for one in job.living() if one is not leader]
        paused.pause()
        eventually(lambda: job.members() == {leader.id}, "it is given up", context=job.logs)
        eventually(
            lambda: set(job.owners().values()) == {"0"} or set(job.owners().values()) == {"1"}, "one has all"
        )
        paused.resume()
        job.shares(2)
    job.counted()


@BY_NIGHT
def test_a_processor_that_does_not_let_go_in_time_is_done_without(make_job: MakeJob) -> None:
    """It is no member to count on until it answers; what it goes on with is fenced off."""
    job = make_job({"job.coordinator.lease.ttl.ms": "20000", "task.shutdown.ms": "1500"})
    with job.counting.fed(300):
        job.running("a", "b")
        leader = job.leader()
        [paused] = [one for one in job.living() if one is not leader]
        before = job.owners()
        paused.pause()
        third = job.join("c")
        third.has("RUNNING")
        eventually(lambda: "container-cut-off" in job.events(), "it is cut off", context=job.logs)
        eventually(lambda: job.owners() != before, "its tasks are others' now", context=job.logs)
        paused.resume()
        job.shares(3)
    job.counted()


@pytest.mark.parametrize(
    ("backend", "point"),
    [
        ("sqlite", "change.fence-raised"),
        pytest.param("sqlite", "change.granted", marks=BY_NIGHT),
        pytest.param("sqlite", "change.replanned", marks=BY_NIGHT),
        *(
            pytest.param(one, "change.fence-raised", marks=BY_NIGHT)
            for one in ("zookeeper", "kafka", "kubernetes")
        ),
    ],
)
def test_a_leader_that_dies_amid_a_hand_over_is_succeeded(
    backend: str, point: str, make_job: MakeJob, request: pytest.FixtureRequest
) -> None:
    """At each of its steps; the successor adopts what runs, and divides the tasks."""
    job = make_job(election(backend, request))
    job.counting.send(2000)
    dies = job.join("a", GRETE_FAILPOINT=f"{point}:kill:{2 if point == 'change.granted' else 1}")
    dies.has("RUNNING")
    job.join("b")
    dies.process.wait(patient(60))
    job.running("c")
    job.counting.send(2000)
    job.counted()


@BY_NIGHT  # the simulator has it in every run, with many more
def test_processors_whose_store_is_down_for_long_go_on_when_it_is_back(make_job: MakeJob) -> None:
    """Longer than their leases, so each may have been given up; by night for five minutes."""
    job = make_job()
    with job.counting.fed(300):
        job.running("a", "b")
        with job.store_is_down():
            time.sleep(AWAY_S)
        job.shares(2)
    job.counted()
    assert all(one.process.poll() is None for one in job.processors)


@BY_NIGHT  # test_full_disk.py has containers in every run
def test_a_processor_whose_disk_is_full_waits_for_room_and_goes_on(make_job: MakeJob) -> None:
    job = make_job()
    streams = job.home / "local" / "streams.db-wal"
    strace = f"strace -D -f -qq -o /dev/null -P {streams} -e trace=pwrite64 -e {FULL}"
    with job.counting.fed(300):
        job.running("a")
        full = job.join("b", under=strace.split())
        eventually(lambda: "the disk of" in full.log.read_text(), "its disk is full", context=job.logs)
        eventually(lambda: " goes on" in full.log.read_text(), "there is room", context=job.logs)
        job.shares(2)
    job.counted()
    assert "is full" in full.log.read_text()


def test_garbage_in_cells_of_processors_costs_no_record(make_job: MakeJob) -> None:
    """Of members, orders and reports, of those there are and of one that there is not."""
    job = make_job()
    with job.counting.fed(300), job.cells() as cells:
        job.running("a", "b")
        for name in (*cells.read_all(""), report_cell("a"), order_cell("stranger"), report_cell("stranger")):
            change(cells, name, lambda value: b"\xffgarbage")
        eventually(lambda: order_cell("a") in cells.read_all("orders"), "an order", context=job.logs)
        job.shares(2)
    job.counted()
    assert all(one.process.poll() is None for one in job.processors)


@BY_NIGHT
@pytest.mark.parametrize("backend", ["sqlite", "zookeeper", "kafka", "kubernetes"])
def test_one_that_comes_and_goes_again_moves_no_task(
    backend: str, make_job: MakeJob, request: pytest.FixtureRequest
) -> None:
    job = make_job({"job.debounce.time.ms": "4000", **election(backend, request)})
    job.running("a")
    flapping = job.join("b")
    flapping.has("STARTED")
    assert flapping.ends() == 0
    time.sleep(4.5)  # nothing is to happen in this time
    assert "reconfigured" not in job.events()
    assert set(job.owners().values()) == {"0"}


@BY_NIGHT
def test_processors_stop_amid_a_hand_over(make_job: MakeJob) -> None:
    job = make_job()
    with job.counting.fed(300):
        [first] = job.running("a")
        second = job.join("b")
        eventually(lambda: "reconfigured" in job.events(), "tasks are to move", context=job.logs)
        assert second.ends() == 0
        job.shares(1)
    job.counted()
    assert first.ends() == 0
    assert job.state() == "stopped"


@BY_NIGHT
def test_an_operators_stop_ends_all_processors(make_job: MakeJob) -> None:
    job = make_job()
    job.counting.send(500)
    processors = job.running("a", "b")
    job.stop()
    assert [one.process.wait(patient(60)) for one in processors] == [0, 0]
    assert job.state() == "stopped"
    assert all(one.said[-2:] == ["after_stop", "STOPPED"] for one in processors)


def test_a_task_that_fails_ends_its_processor_and_the_others_go_on(make_job: MakeJob) -> None:
    job = make_job({"task.class": "tests.support.failing:FailingHere"})
    job.running("a")
    failing = job.join("b", **{FAILS: "1"})
    job.shares(2)
    job.counting.send(2000)
    assert failing.process.wait(patient(60)) == 1
    assert "after_failure ProcessorFailed" in "".join(failing.said)
    assert "not on this machine" in "".join(failing.said)
    job.shares(1)
    job.counted()


def test_two_processors_of_one_process_and_what_is_refused(make_job: MakeJob) -> None:
    job = make_job()
    first = grete.StreamProcessor(job.settings, processor_id="a", run_container=run_container)
    with pytest.raises(IllegalStateError, match=r"call start\(\) first"):
        first.stop()
    with pytest.raises(IllegalStateError, match=r"call start\(\) first"):
        first.wait(0)
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with first:
        with pytest.raises(IllegalStateError, match="make another StreamProcessor"):
            first.start()
        again = grete.StreamProcessor(job.settings, processor_id="a", run_container=run_container)
        with pytest.raises(IdTaken, match="an id of its own"):
            again.start()
        assert again.state == "NEW"
        with grete.StreamProcessor(job.settings, run_container=run_container) as other:
            eventually(lambda: first.state == other.state == "RUNNING", "both run", within_s=60)
            job.counting.send(1000)
            job.counted()
        eventually(lambda: len(set(job.owners().values())) == 1, "the tasks are the first one's")
    assert first.state == other.state == "STOPPED"
    assert job.state() == "stopped"
    assert handlers == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    assert first.wait(0), "again is the same"


def test_a_processor_of_another_home_is_refused(
    make_job: MakeJob, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its election and its cells are those of the job; its containers would not find the others' leader."""
    job = make_job(election("zookeeper", request))
    [first] = job.running("a")
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "another"))
    other = grete.StreamProcessor(job.settings, processor_id="b", run_container=run_container)
    with pytest.raises(
        MembersElsewhere, match=r"processor a \(process \d+ .*has another GRETE_HOME.*start this"
    ):
        other.start()
    assert other.state == "NEW"
    assert job.members() == {"a"}
    assert first.ends() == 0
    other = grete.StreamProcessor(job.settings, processor_id="b", run_container=run_container)
    with other:
        assert job.members() == {"b"}, "there is no other one any more"


def test_status_says_that_no_processor_lives_when_all_were_killed(
    make_job: MakeJob, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job()

    def status() -> dict[str, Any]:
        capsys.readouterr()
        assert main(["status", "--job", job.job.shown, "-o", "json"]) == 0
        [row] = json.loads(capsys.readouterr().out)
        return dict(row)

    [only] = job.running("a")
    eventually(lambda: status()["state"] == "running", "its batches are seen")
    row = status()
    assert (row["processors"], row["message"]) == (["a"], "")
    only.kill()
    eventually(lambda: not status()["processors"], "it is given up")
    row = status()
    assert row["state"] == "died"
    assert row["message"] == "no processor lives; it goes on when one starts"
    [next_one] = job.running("b")
    eventually(lambda: status()["state"] == "running", "it goes on")
    assert next_one.ends() == 0
    row = status()
    assert (row["state"], row["processors"]) == ("stopped", None)


def test_a_wrong_configuration_is_refused_at_the_start(make_job: MakeJob) -> None:
    job = make_job({"task.commit.ms": "soon"})
    processor = grete.StreamProcessor(job.settings, run_container=run_container)
    with pytest.raises(ConfigError, match=r"task\.commit\.ms"):
        processor.start()
    assert processor.state == "NEW"
    with pytest.raises(ConfigError, match="cannot be loaded by the processes"):
        grete.StreamProcessor(job.settings, lambda: None)  # type: ignore[arg-type]
