"""A coordinated job and the findings of its monitors: a new model, new inputs, or a problem that is shown."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.watched_job import CONFIG, JOB, ZERO, Watched

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.config.key_tables.job import SSP_GROUPER
from grete.config.settings import Settings
from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.events import ContainerRequested, StopRequested
from grete.coordinator.plan import Planner
from grete.coordinator.state import State
from grete.errors import ConfigError
from grete.metadata.change_authors import changed_since_the_last_start
from grete.metadata.config_in_force import ConfigInForce
from grete.metadata.container_requests import ask_container
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.history import History, unchanged_attempts
from grete.metadata.job_state import Request, RequestKind, StopRequest, write_request, write_stop_request
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName
from grete.model.job import JobModel
from grete.model.messages import SET_CONFIG
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem


@pytest.fixture
def job(home: Path, system: LocalSystem) -> Iterator[Watched]:
    system.create_stream(StreamSpec("orders-eu", 2))
    with ExitStack() as stack:
        yield Watched(home, stack)


def shown(model: JobModel) -> dict[str, list[str]]:
    return {task.name: sorted(map(str, task.ssps)) for task in model.tasks.values()}


def test_partitions_that_were_added_come_into_a_new_model_once(job: Watched, system: LocalSystem) -> None:
    assert job.step() == []
    system.add_partitions("orders-eu", 4)
    assert len(job.step()) == 1
    assert shown(job.model) == {
        "Partition 0": ["local.orders-eu.0", "local.orders-eu.2"],
        "Partition 1": ["local.orders-eu.1", "local.orders-eu.3"],
    }
    assert job.step() == []


def test_a_growth_that_keys_cannot_follow_is_a_problem_until_it_is_made_good(
    job: Watched, system: LocalSystem
) -> None:
    before = shown(job.model)
    system.add_partitions("orders-eu", 5)
    assert job.step() == []
    assert "had 2 partitions and has 5" in job.view.problem
    assert shown(job.model) == before
    system.add_partitions("orders-eu", 6)
    assert len(job.step()) == 1
    assert job.view.problem == ""
    assert len(job.model.tasks) == 2


def test_a_new_stream_that_the_regex_matches_becomes_an_input_and_nothing_else_is_rewritten(
    job: Watched, system: LocalSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMZA_TASK_CLASS", "other:Class")
    system.create_stream(StreamSpec("orders-us", 3))
    system.create_stream(StreamSpec("other", 3))
    assert len(job.step()) == 1
    assert job.stream.config()["task.inputs"] == "local.orders-eu,local.orders-us"
    assert job.stream.config()["task.class"] == CONFIG["task.class"]
    assert shown(job.model)["Partition 2"] == ["local.orders-us.2"]
    assert job.step() == []


def test_inputs_of_a_pipeline_grow_by_the_regex_as_those_of_stream_tasks_do(
    home: Path, system: LocalSystem
) -> None:
    system.create_stream(StreamSpec("orders-eu", 2))
    own = {key: value for key, value in CONFIG.items() if not key.startswith(("task.class", "stores."))}
    with ExitStack() as stack:
        job = Watched(home, stack, config={**own, "app.class": "orders:Orders"})
        job.brokers.create_stream(StreamSpec("orders-us", 3))
        (changed,) = job.step()
        assert shown(job.model)["Partition 2"] == ["local.orders-us.2"]
        assert "task.inputs" in changed.cause


CRASHES = {
    "exit": "os._exit(7)",
    "segfault": "os.kill(os.getpid(), signal.SIGSEGV)",
    "exception": "raise LookupError('no such place')",
    "in-one-environment": "raise LookupError('no such place')",
}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit", r"grouper\.factory=own:Grouper .*ended with exit code 7.*last output:\n  grouping"),
        ("segfault", r"grouper\.factory=own:Grouper .*ended with signal SIGSEGV"),
        (
            "exception",
            r"grouper\.factory='own:Grouper' failed at .*own\.py, line 7: LookupError\('no such place'\)",
        ),
        ("in-one-environment", r"failed at .*own\.py, line 7: LookupError\('no such place'\)"),
    ],
)
def test_a_grouper_of_the_application_that_crashes_is_named_and_the_coordinator_goes_on(
    home: Path, system: LocalSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, said: str
) -> None:
    """It was asked at the start, too; the partitions that came since are what it crashes for."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own", raising=False)
    (tmp_path / "own.py").write_text(
        f"import os, signal\n"
        f"class Grouper:\n"
        f"    def group(self, ssps, config):\n"
        f"        print('grouping', flush=True)\n"
        f"        if len(ssps) == 4 and 'mended' not in config:\n"
        f"            # the line that a message names\n"
        f"            {CRASHES[how]}\n"
        f"        return {{f'of {{len(ssps)}}': list(ssps)}}\n"
    )
    own = {
        "job.application.path": str(tmp_path),
        "job.split.deployment.enabled": str(how != "in-one-environment").lower(),
        SSP_GROUPER.name: "own:Grouper",
    }
    stateless = {key: value for key, value in CONFIG.items() if not key.startswith(("stores.", "job.config"))}
    system.create_stream(StreamSpec("orders-eu", 2))
    with ExitStack() as stack:
        job = Watched(home, stack, config={**stateless, **own})
        assert list(shown(job.model)) == ["of 2"]
        grow(job)
        assert job.changed_models() == []
        assert re.search(said, job.view.problem, re.DOTALL), job.view.problem
        assert list(shown(job.model)) == ["of 2"]
        job.stream.change_config({"mended": "true"}, run_id="run")
        assert len(job.changed_models()) == 1
        assert (list(shown(job.model)), job.view.problem) == (["of 4"], "")


def test_the_containers_that_an_autosizer_writes_into_the_stream_are_run(
    home: Path, system: LocalSystem
) -> None:
    """As Samza's does: the key alone, without a submit. While it is off, the key counts for nothing."""
    system.create_stream(StreamSpec("orders-eu", 4))
    with ExitStack() as stack:
        job = Watched(home, stack, config={**CONFIG, "job.autosizing.enabled": "true"})
        assert len(job.model.containers) == 1
        job.stream.put("set-config", {"job.autosizing.container.count": "3"})
        assert len(job.changed_models()) == 1
        assert len(job.model.containers) == 3
        job.stream.change_config({"job.autosizing.enabled": "false"}, run_id="run")
        job.changed_models()
        assert len(job.model.containers) == 1


@pytest.mark.parametrize(("affinity", "moved"), [("true", 1), ("false", 2)])
def test_tasks_stay_in_their_containers_where_host_affinity_is_on(
    home: Path, system: LocalSystem, affinity: str, moved: int
) -> None:
    """With more containers; which host a container runs on is the launcher's choice, or Spark's."""
    system.create_stream(StreamSpec("orders-eu", 4))
    given = {"job.container.count": "2", "job.host-affinity.enabled": affinity}
    with ExitStack() as stack:
        job = Watched(home, stack, config={**CONFIG, **given})
        before = places(job)
        job.stream.change_config({"job.container.count": "3"}, run_id="run")
        assert len(job.changed_models()) == 1
        after = places(job)
        assert len(set(after.values())) == 3
        assert sum(after[task] != id_ for task, id_ in before.items()) == moved


def places(job: Watched) -> dict[TaskName, ContainerId]:
    return {task: id_ for id_, one in job.model.containers.items() for task in one.tasks}


def drain(job: Watched) -> None:
    write_request(job.stream, Request(RequestKind.DRAIN, 2, "enough"))


def grow(job: Watched) -> None:
    job.brokers.add_partitions("orders-eu", 4)
    job.look()


def match(job: Watched) -> None:
    job.brokers.create_stream(StreamSpec("orders-us", 3))
    job.look()


@pytest.mark.parametrize("change", [drain, grow, Watched.configure, match])
def test_what_is_asked_for_while_brokers_are_away_is_followed_when_they_are_back(
    job: Watched, change: Callable[[Watched], None]
) -> None:
    """Monitors report a finding once, and an operator waits."""
    change(job)
    job.brokers.are_away = True
    assert job.changed_models() == []
    assert "yet, and is tried again: no broker answers" in job.view.problem
    assert "config-refused" not in [row.event for row in History(job.stream).rows()]
    job.brokers.are_away = False
    job.clock.advance(60)
    assert len(job.changed_models()) == 1
    assert job.view.problem == ""
    assert job.changed_models() == []


def test_between_attempts_to_follow_the_coordinator_has_as_long_for_other_things(job: Watched) -> None:
    drain(job)
    job.brokers.are_away, job.brokers.answers_after_s = True, 30
    assert job.changed_models() == []
    job.brokers.are_away = False
    job.clock.advance(29)
    assert job.changed_models() == []
    job.clock.advance(1)
    assert len(job.changed_models()) == 1


@pytest.fixture
def asked(home: Path, system: LocalSystem) -> Iterator[Callable[[int], Watched]]:
    """A job that was asked, before it was coordinated, to stop, to drain, and to restart its container."""
    system.create_stream(StreamSpec("orders-eu", 2))
    with ExitStack() as stack:

        def make(epoch: int) -> Watched:
            def ask(stream: CoordinatorStream) -> None:
                write_stop_request(stream, StopRequest(epoch, 5, "enough"))
                write_request(stream, Request(RequestKind.DRAIN, epoch, "enough"))
                ask_container(stream, ZERO, "restart", epoch, 5, "odd")

            return Watched(home, stack, ask)

        yield make


def test_what_was_asked_of_a_coordinator_since_its_election_is_obeyed_once(
    asked: Callable[[int], Watched],
) -> None:
    """Between the election and the first look at the stream it reads, plans and writes: seconds on Kafka."""
    job = asked(2)
    events = job.events()
    assert StopRequested(5, "enough") in events
    assert ContainerRequested(ZERO, "restart", 5, "odd") in events
    assert job.view.containers.until_drained
    assert job.events() == []


def test_what_was_asked_of_the_run_before_is_not_obeyed(asked: Callable[[int], Watched]) -> None:
    job = asked(1)
    assert job.events() == []
    assert not job.view.containers.until_drained


def test_a_request_for_a_container_waits_until_it_is_known_which_there_are(job: Watched) -> None:
    """As long as a coordinator waits for containers that it has adopted no model is in force."""
    ask_container(job.stream, ZERO, "restart", 2, 5, "odd")
    assert job.events(State(RetryPolicy())) == []
    assert job.events() == [ContainerRequested(ZERO, "restart", 5, "odd")]


def test_another_grouper_is_not_followed_where_checkpoints_would_be_left_behind(
    home: Path, system: LocalSystem
) -> None:
    """Also of a job without stores (S2-110): neither while it runs, nor at the next start."""
    system.create_stream(StreamSpec("orders-eu", 2))
    stateless = {key: value for key, value in CONFIG.items() if not key.startswith("stores.")}
    with ExitStack() as stack:
        job = Watched(home, stack, config=stateless)
        commit = {TaskName("Partition 1"): TaskCommit({SystemStreamPartition("local", "orders-eu", 1): "7"})}
        entries = commit_entries(commit, grouper=Settings.of(stateless).job.ssp_grouper)
        system.checkpoint_log(checkpoint_log_name(JOB)).append(entries)
        by_ssp = {**stateless, SSP_GROUPER.name: "GroupBySystemStreamPartitionFactory"}
        job.stream.write_config(by_ssp, run_id="run", reason="")
        assert job.changed_models() == []
        assert "local.orders-eu.1 was read up to 7 by 'Partition 1'" in job.view.problem
        planner = Planner(JOB, home, job.stream, job.clock, stack)
        with pytest.raises(ConfigError, match=r"local\.orders-eu\.1 was read up to 7"):
            planner.plan(Settings.of(by_ssp))
        job.stream.write_config(stateless, run_id="run", reason="")
        assert len(job.changed_models()) == 1
        assert job.view.problem == ""


def test_a_store_that_another_program_gave_another_changelog_is_not_followed_by_the_next_start_either(
    job: Watched, home: Path
) -> None:
    """The coordinator has died meanwhile, and with it what it knew: what is in force stands in the stream (S1-23)."""
    job.stream.put(SET_CONFIG, {"stores.totals.changelog": "local.other"})
    with ExitStack() as stack:
        successor = Planner(JOB, home, job.stream, job.clock, stack)
        with pytest.raises(ConfigError, match=r"stores\.totals\.changelog can not change from unset"):
            successor.plan(Settings.of(job.stream.config()))
        job.stream.put(SET_CONFIG, {"stores.totals.changelog": None})
        assert successor.plan(Settings.of(job.stream.config())).model.tasks


def test_what_an_operator_forced_is_followed_and_is_in_force_then(job: Watched, home: Path) -> None:
    moved = {**CONFIG, "stores.totals.changelog": "local.other"}
    ConfigInForce(job.stream).force(moved)
    job.stream.write_config(moved, run_id="run", reason="")
    with ExitStack() as stack:
        planner = Planner(JOB, home, job.stream, job.clock, stack)
        assert planner.plan(Settings.of(moved)).model.tasks
        with pytest.raises(ConfigError, match=r"from 'local\.other' to unset"):
            planner.plan(Settings.of(CONFIG))


def test_a_change_that_is_followed_names_its_keys_who_made_it_and_why(job: Watched) -> None:
    job.stream.change_config({"task.commit.ms": "5000"}, run_id="run", reason="too slow")
    assert len(job.changed_models()) == 1
    why = History(job.stream).rows()[-1].details
    assert (why["keys"], why["reason"]) == ("task.commit.ms", "too slow")
    assert why["who"].endswith("(test)")


def test_changes_to_a_stopped_job_count_at_its_next_start(job: Watched) -> None:
    History(job.stream).append("deployment")
    assert changed_since_the_last_start(job.stream) == []
    job.clock.advance(60)
    job.stream.change_config({"task.commit.ms": "5000"}, run_id="run", reason="")
    assert changed_since_the_last_start(job.stream) == ["task.commit.ms"]


def test_attempts_are_counted_within_their_deployment(job: Watched) -> None:
    history = History(job.stream)
    for event in ("deployment", "attempt", "deployment", "attempt", "container-exited", "attempt", "change"):
        history.append(event)
    assert unchanged_attempts(history.rows()) == 2


def test_processors_that_come_back_while_their_loss_cannot_be_followed_get_tasks_again(
    home: Path, system: LocalSystem
) -> None:
    """Brokers were away when one had gone; what was written then is not the last word."""
    system.create_stream(StreamSpec("orders-eu", 2))
    one, both = (ContainerId("0"),), (ContainerId("0"), ContainerId("1"))
    config = {**CONFIG, "job.launcher": "processors", "job.container.ids": "0,1"}
    with ExitStack() as stack:
        job = Watched(home, stack, config=config)
        job.fit(both)
        assert not job.changed_models(), "that is the model in force"
        job.brokers.are_away = True
        job.fit(one)
        assert not job.changed_models()
        job.fit(both)
        job.brokers.are_away = False
        job.clock.advance(300)
        job.changed_models()
        job.fit(both)
        job.changed_models()
        assert sorted(job.model.containers) == ["0", "1"]
        assert job.stream.config()["job.container.ids"] == "0,1"
