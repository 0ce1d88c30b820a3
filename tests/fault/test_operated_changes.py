"""Jobs that are reconfigured while they run: followed, refused, taken back, and killed meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.operated_job import JOB, Job, spoke_since, turns

from grete.errors import CoordinatorUnavailable
from grete.http_client import JobCoordinatorClient
from grete.metadata.launches import read_launches
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.testing.waiting import patient
from grete.wire.container_protocol import Command, Directive, Heartbeat

pytestmark = pytest.mark.fault


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(tmp_path)
    monkeypatch.setenv("GRETE_HOME", str(made.home))
    yield made
    made.end()


def test_more_containers_and_fewer_move_tasks_and_never_share_one(job: Job) -> None:
    job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    for count in ("3", "2", "4", "1"):
        job.set(job__container__count=count)
        job.eventually(lambda n=int(count): len({who for who, _ in job.last().values()}) == n)  # type: ignore[misc]
    assert max(turns(job)) <= 4
    assert job.events().count("reconfigured") == 4


def test_tasks_go_on_where_they_are_until_who_is_to_have_them_is_ready(job: Job) -> None:
    job.submit(**{"test.waits": "yes"})
    job.eventually(lambda: len(job.last()) == 4)
    job.set(job__container__count="2")
    job.eventually(lambda: "1" in launched(job))
    count = len(job.said())
    job.eventually(lambda: len(job.said()) > count + 40)
    assert {one["container"] for one in job.said()} == {"0"}
    assert launched(job)["0"] == "1", "it was not commanded to do anything"
    (job.home / "ready").touch()
    job.eventually(lambda: {who for who, _ in job.last().values()} == {"0", "1"})
    assert max(turns(job)) == 1


def test_a_container_that_does_not_get_ready_stops_nobody(job: Job) -> None:
    job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    job.set(job__container__count="2", test__unfit="1")
    job.eventually(lambda: "config-refused" in job.events())
    count = len(job.said())
    job.eventually(lambda: len(job.said()) > count + 40)
    assert {one["container"] for one in job.said()} == {"0"}
    assert launched(job) == {"0": "1"}


def launched(job: Job) -> dict[str, str]:
    """By container, the number of what it was commanded to run last."""
    with open_job(JOB) as handle:
        return {key: str(record.serial) for key, record in read_launches(handle.stream).items()}


def test_only_the_query_is_rebuilt_when_nothing_else_changed(job: Job) -> None:
    job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    first = job.last()
    job.set(task__max__records__per__batch="7")
    job.eventually(lambda: job.said()[-1]["batch"] == "7")
    assert job.last() == first, "the same incarnation"


def test_a_live_key_touches_no_container(job: Job) -> None:
    job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    job.set(**{"cluster-manager__container__retry__count": "3"})
    job.eventually(lambda: "reconfigured" in job.events())
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
    assert set(launched(job).values()) == {"1"}


def test_a_container_that_does_not_let_go_is_cut_off_in_time(job: Job) -> None:
    job.submit(**{"test.deaf": "0"})
    job.eventually(lambda: len(job.last()) == 4)
    job.set(job__container__count="2", test__deaf="none")
    job.eventually(lambda: len({who for who, _ in job.last().values()}) == 2)
    assert "container-cut-off" in job.events()
    assert max(turns(job)) == 1


def test_a_configuration_that_is_wrong_changes_nothing_and_is_shown(job: Job) -> None:
    job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    with open_job(JOB) as handle:  # as a foreign writer would, past every check
        set_config(
            handle, {"task.inputs": "nowhere.x", "job.container.count": "0"}, reason="oops", force=True
        )
    job.eventually(lambda: "config-refused" in job.events())
    with open_job(JOB) as handle:
        state = handle.state()
        assert state is not None
        assert "job.container.count" in state.message
        assert "nowhere" in state.message
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
    with open_job(JOB) as handle:
        set_config(
            handle, {"task.inputs": "local.in", "job.container.count": "2"}, reason="repaired", force=True
        )
    job.eventually(lambda: len({who for who, _ in job.last().values()}) == 2)
    with open_job(JOB) as handle:
        repaired = handle.state()
        assert repaired is not None
        assert repaired.message == ""


@pytest.mark.parametrize("beside", [{}, {"spark__driver__memory": "2g"}], ids=["rebuilt", "started again"])
def test_a_change_with_which_a_container_does_not_get_to_work_is_taken_back(
    job: Job, beside: dict[str, str]
) -> None:
    """Whoever has mistyped it, a job that has worked goes on as before, and another change is followed again."""
    job.submit(**{"job.container.count": "2", "task.max.records.per.batch": "5"})
    job.eventually(lambda: len(job.last()) == 4)
    job.set(test__unfit="1", task__max__records__per__batch="6", **beside)
    job.eventually(lambda: "config-refused" in job.events())
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 8))
    job.eventually(lambda: {one["batch"] for one in job.said()[-4:]} == {"5"})
    with open_job(JOB) as handle:
        state, config = handle.state(), handle.config()
        assert state is not None
        assert "the configuration before is in force again: container 1 ended with code 2" in state.message
        assert {key: config.get(key) for key in ("test.unfit", "task.max.records.per.batch")} == {
            "test.unfit": None,
            "task.max.records.per.batch": "5",
        }
    assert max(turns(job)) <= 2
    job.set(task__max__records__per__batch="7")
    job.eventually(lambda: {one["batch"] for one in job.said()[-4:]} == {"7"})
    with open_job(JOB) as handle:
        state = handle.state()
        assert state is not None
        assert (state.state, state.message) == ("running", "")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("dies", "beside"),
    [
        ("change.replanned:kill", {}),
        ("change.granted:kill:2", {}),
        ("coordinator.launched:kill:3", {"spark__driver__memory": "2g"}),
    ],
    ids=["not followed yet", "told to nobody", "started again"],
)
def test_it_is_taken_back_by_the_next_coordinator_where_that_one_has_died(
    job: Job, dies: str, beside: dict[str, str]
) -> None:
    coordinator = job.submit(dies=dies, **{"job.container.count": "2"})
    job.eventually(lambda: len(job.last()) == 4)
    job.set(test__unfit="1", **beside)
    assert coordinator.wait(timeout=patient(30)) == -signal.SIGKILL
    job.coordinate()
    job.eventually(lambda: "config-refused" in job.events())
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 8))
    with open_job(JOB) as handle:
        state, config = handle.state(), handle.config()
    assert state is not None
    assert "the configuration before is in force again: container 1 ended with code 2" in state.message
    assert "test.unfit" not in config
    assert max(turns(job)) <= 3


def test_a_job_that_starts_with_what_no_container_works_with_fails_as_ever(job: Job) -> None:
    coordinator = job.submit(**{"test.unfit": "0"})
    _, said = coordinator.communicate(timeout=patient(60))
    assert (coordinator.returncode, "this container cannot work with it" in said) == (2, True)


def test_a_start_with_a_value_that_is_wrong_goes_on_with_the_last_good_configuration(job: Job) -> None:
    coordinator = job.submit(**{"task.max.records.per.batch": "77"})
    job.eventually(lambda: len(job.last()) == 4)
    before = job.last()
    coordinator.kill()
    coordinator.communicate()
    with open_job(JOB) as handle:
        set_config(handle, {"task.max.records.per.batch": "abc", "": "x"}, reason="oops", force=True)
    job.coordinate()
    job.eventually(lambda: "config-refused" in job.events())
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
    assert (job.last(), job.said()[-1]["batch"]) == (before, "77")
    with open_job(JOB) as handle:
        state = handle.state()
    assert state is not None
    assert "task.max.records.per.batch" in state.message


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "dies",
    [
        "change.replanned:kill",
        "change.fence-raised:kill",
        "change.granted:kill:2",
        "change.recorded:kill",
        "launch.started:kill:2",
        "coordinator.launched:kill:2",
        "coordinator.launched:kill:3",
    ],
)
def test_killed_anywhere_in_a_change_the_next_coordinator_completes_it(job: Job, dies: str) -> None:
    coordinator = job.submit(dies=dies)
    job.eventually(lambda: len(job.last()) == 4)
    job.set(job__container__count="3")
    assert coordinator.wait(timeout=patient(30)) == -signal.SIGKILL
    job.coordinate()
    job.eventually(lambda: len({who for who, _ in job.last().values()}) == 3)
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
    assert max(turns(job)) <= 3, "each task changed hands as often as it was given away"


def test_who_is_said_to_have_paused_and_has_not_commits_nothing_more(job: Job) -> None:
    """A forged or late `paused`: the others are given its tasks, and its own commits are refused."""
    job.submit(**{"test.deaf": "0"})
    job.eventually(lambda: len(job.last()) == 4)
    with open_job(JOB) as handle:
        state, [launch] = handle.state(), read_launches(handle.stream).values()
        assert state is not None
    job.set(job__container__count="2", task__shutdown__ms="60000")
    liar = JobCoordinatorClient(state.url, Path(state.token_file))
    directives: list[Directive] = []

    def is_told_to_pause() -> bool:
        directives.append(liar.heartbeat("0", Heartbeat(launch.epoch)))
        return directives[-1].action is Command.PAUSE

    job.eventually(is_told_to_pause)
    liar.heartbeat("0", Heartbeat(launch.epoch, paused=directives[-1].number))
    job.eventually(lambda: len({who for who, _ in job.last().values()}) == 2)
    count = len(job.said())
    job.eventually(lambda: spoke_since(job, count + 4))
    assert max(turns(job)) <= 2, "each task changed hands as often as it was given away"
    reader = JobCoordinatorClient(state.url, Path(state.read_token_file))
    with pytest.raises(CoordinatorUnavailable, match="401"):
        reader.heartbeat("0", Heartbeat(launch.epoch, paused=1))
    reader.close()
    liar.close()
