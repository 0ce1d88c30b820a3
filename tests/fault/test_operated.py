"""Jobs that are succeeded by another coordinator, and whose containers are asked one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.operated_job import JOB, Job, container_pids, spoke_since, turns

from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import patient

pytestmark = pytest.mark.fault


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(tmp_path)
    monkeypatch.setenv("GRETE_HOME", str(made.home))
    yield made
    made.end()


def test_containers_go_on_without_a_coordinator_and_the_next_one_adopts_them(job: Job) -> None:
    coordinator = job.submit(**{"job.container.count": "2"})
    job.eventually(lambda: len(job.last()) == 4)
    before = job.last()
    coordinator.kill()
    coordinator.communicate()
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
    job.coordinate()
    job.eventually(lambda: job.events().count("container-adopted") == 2)
    with open_job(JOB) as handle:
        pids = container_pids(handle)
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
    assert job.last() == before, "the same incarnations, not new ones"
    assert all(Path(f"/proc/{pid}").exists() for pid in pids.values())
    assert job.events()[:2] == ["deployment", "attempt"]


def test_the_exit_of_an_adopted_container_is_noticed_and_it_is_started_again(job: Job) -> None:
    coordinator = job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    first = job.last()
    coordinator.kill()
    coordinator.communicate()
    job.coordinate()
    job.eventually(lambda: "container-adopted" in job.events())
    with open_job(JOB) as handle:
        os.kill(container_pids(handle)["0"], signal.SIGKILL)
    job.eventually(lambda: job.last() != first)
    assert "container-exited" in job.events()


def test_a_container_that_died_with_its_coordinator_is_restarted(job: Job) -> None:
    coordinator = job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    first = job.last()
    with open_job(JOB) as handle:
        pid = container_pids(handle)["0"]
    coordinator.kill()
    coordinator.communicate()
    os.kill(pid, signal.SIGKILL)
    job.coordinate()
    job.eventually(lambda: job.last() != first)
    with open_job(JOB) as handle:
        assert container_pids(handle)["0"] != pid


def test_a_container_without_any_coordinator_ends_itself(job: Job) -> None:
    coordinator = job.submit(
        **{
            "yarn.container.heartbeat.retry.count": "1",
            "yarn.container.heartbeat.retry-sleep-duration.ms": "1000",
        }
    )
    job.eventually(lambda: len(job.last()) == 4)
    with open_job(JOB) as handle:
        pid = container_pids(handle)["0"]
    coordinator.kill()
    coordinator.communicate()
    job.eventually(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("nth", [1, 2])
def test_killed_while_it_adopts_the_next_coordinator_adopts_all(job: Job, nth: int) -> None:
    coordinator = job.submit(**{"job.container.count": "3"})
    job.eventually(lambda: len(job.last()) == 4)
    before = job.last()
    coordinator.kill()
    coordinator.wait()
    assert job.coordinate(dies=f"change.adopted:kill:{nth}").wait(timeout=patient(30)) == -signal.SIGKILL
    job.coordinate()
    job.eventually(lambda: job.events().count("container-adopted") == nth + 3)
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
    assert job.last() == before


def test_killed_between_fencing_off_and_killing_the_next_coordinator_goes_on(job: Job) -> None:
    coordinator = job.submit(dies="change.fenced-off:kill", **{"test.deaf": "0"})
    job.eventually(lambda: len(job.last()) == 4)
    job.set(job__container__count="2", test__deaf="none")
    assert coordinator.wait(timeout=patient(30)) == -signal.SIGKILL
    job.coordinate()
    job.eventually(lambda: len({who for who, _ in job.last().values()}) == 2)
    assert max(turns(job)) <= 2


def grete(job: Job, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grete.cli.main", *words]
    return subprocess.run(
        command, env={**os.environ, "GRETE_HOME": str(job.home)}, capture_output=True, text=True
    )


def test_one_container_is_stopped_started_and_restarted_while_the_others_work(job: Job) -> None:
    job.submit(**{"job.container.count": "2"})
    job.eventually(lambda: len(job.last()) == 4)
    first = job.last()
    assert grete(job, "container", "stop", "1", "--reason", "its disk is noisy").returncode == 0
    job.eventually(lambda: job.events().count("container-exited") == 1)
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4, ("0", "2")))
    assert "stopped by an operator" in grete(job, "container", "list").stdout
    assert grete(job, "container", "start", "1").returncode == 0
    job.eventually(lambda: job.last()["Partition 1"] != first["Partition 1"])
    second = job.last()
    assert grete(job, "container", "restart", "1").returncode == 0
    job.eventually(lambda: job.last()["Partition 1"] != second["Partition 1"])
    assert job.last()["Partition 0"] == first["Partition 0"], "the other one did not notice"


def test_what_cannot_be_asked_of_a_container_is_refused_with_the_reason(job: Job) -> None:
    job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    unknown = grete(job, "container", "restart", "7")
    assert (unknown.returncode, "it has 0" in unknown.stderr) == (1, True)
    elsewhere = grete(job, "container", "move", "0", "--to", "elsewhere.example")
    assert (elsewhere.returncode, "where the coordinator runs" in elsewhere.stderr) == (1, True)


def test_containers_find_the_next_coordinator_at_the_address_of_the_one_before(job: Job) -> None:
    [port] = free_ports(1)
    coordinator = job.submit(**{"job.http.port": str(port)})
    job.eventually(lambda: len(job.last()) == 4)
    before = job.last()
    coordinator.kill()
    coordinator.communicate()
    job.coordinate()
    job.eventually(lambda: "container-adopted" in job.events())
    job.set(task__max__records__per__batch="7")
    job.eventually(lambda: job.said()[-1]["batch"] == "7")
    assert job.last() == before, "the same incarnation, which got it"


def test_what_the_planner_trips_over_is_shown_and_ends_nothing(job: Job) -> None:
    job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    (job.home / "a-file").write_text("no folder")
    bad = {
        "systems.foo.samza.factory": "local",
        "systems.foo.path": str(job.home / "a-file"),
        "task.inputs": "foo.x",
    }
    with open_job(JOB) as handle:
        set_config(handle, bad, reason="a path that is a file", force=True)
    job.eventually(lambda: "config-refused" in job.events())
    with open_job(JOB) as handle:
        state = handle.state()
        assert state is not None
        assert "a-file" in state.message
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
