"""Jobs that are operated: reconfigured while they run, succeeded by another coordinator, cut off.

Containers run their real main loop (`ContainerMainLoop`); instead of Spark they commit a record per task, under their
fence, into a real stream, so that two writers of one task would show.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.errors import CoordinatorUnavailable
from grete.http_client import JobCoordinatorClient
from grete.metadata.launches import read_launches
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.operations.job_handle import JobHandle
from grete.systems.local.system import LocalSystem
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually, patient
from grete.wire.container_protocol import Command, Directive, Heartbeat

pytestmark = pytest.mark.fault

CONTAINER = """
import json, os, signal, sys, threading, time
from pathlib import Path
from grete.clock import SystemClock
from grete.errors import ConfigError, Fenced
from grete.tasks.commit.base import BatchOutcome
from grete.exit_report import write_report
from grete.container.main_loop import ContainerMainLoop
from grete.container.control import Ended
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack

system = LocalSystem(Path(os.environ["GRETE_HOME"]) / "local", SystemClock())

def work(assignment, control, on_batch):
    deaf = assignment.settings.raw.get("test.deaf") == str(assignment.container_id)
    if assignment.settings.raw.get("test.unfit") == str(assignment.container_id):
        raise ConfigError("test.unfit: this container cannot work with it")
    system.raise_fence([assignment.fence])
    batch = 0
    while deaf or not control.is_set():
        said = [json.dumps({"task": task.name, "container": assignment.container_id, "epoch": assignment.epoch,
                            "batch": assignment.settings.raw.get("task.max.records.per.batch")}).encode()
                for task in assignment.tasks]
        with_fence(said, assignment.fence)
        batch += 1
        on_batch(batch, BatchOutcome(records=len(said)))
        time.sleep(0.1)
    return Ended.INTERRUPTED

def with_fence(said, fence):
    segment = SegmentWrite("said", 0, len(said), pack([b""] * len(said), said, [0] * len(said)))
    system.commit(CommitGroup([fence], [segment], "", []))

stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
code = ContainerMainLoop(os.environ, stop, work).run()
write_report(code)
os._exit(code)
"""
RUNNER = """
import sys
from grete.assembly import RunOptions, run_job
from grete.errors import GreteError
from grete.model.ids import JobId
container, *config = sys.argv[1:]
options = (RunOptions(config_paths=config, container_command=(sys.executable, container)) if config
           else RunOptions(job=JobId.parse("job"), container_command=(sys.executable, container)))
try:
    sys.exit(run_job(options))
except GreteError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""
JOB = JobId("job")


class Job:
    """The job, its coordinator processes, and what its containers said."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self._directory = directory
        self._coordinators: list[subprocess.Popen[str]] = []
        (directory / "container.py").write_text(CONTAINER)
        (directory / "runner.py").write_text(RUNNER)
        with closing(LocalSystem(self.home / "local", SystemClock())) as system:
            system.create_stream(StreamSpec("in", 4))
            system.create_stream(StreamSpec("said", 1))

    def submit(self, *, dies: str = "", **settings: str) -> subprocess.Popen[str]:
        path = self._directory / "job.properties"
        base = {"job.name": "job", "task.class": "x:X", "task.inputs": "local.in", "task.shutdown.ms": "1500"}
        path.write_text("\n".join(f"{key}={value}" for key, value in {**base, **settings}.items()))
        return self.coordinate(str(path), dies=dies)

    def coordinate(self, *config: str, dies: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, str(self._directory / "runner.py"), str(self._directory / "container.py")]
        process = subprocess.Popen(
            [*command, *config],
            env={**os.environ, "GRETE_HOME": str(self.home), **({"GRETE_FAILPOINT": dies} if dies else {})},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._coordinators.append(process)
        return process

    def said(self) -> list[dict[str, str]]:
        with closing(LocalSystem(self.home / "local", SystemClock())) as system:
            batches = [batch for _, batch in system.read("said", 0, 0)]
            return [json.loads(value) for batch in batches for value in batch.column(1).to_pylist()]

    def last(self) -> dict[str, tuple[str, str]]:
        """The container and epoch that spoke for each task last."""
        return {one["task"]: (one["container"], one["epoch"]) for one in self.said()}

    def events(self) -> list[str]:
        with open_job(JOB) as handle:
            return [row.event for row in handle.history()]

    def eventually(self, condition: Callable[[], object], *, within_s: float = 60) -> None:
        eventually(condition, within_s=within_s, context=lambda: f"{self.events()}\nlast: {self.last()}")

    def set(self, **changes: str) -> None:
        with open_job(JOB) as handle:
            set_config(
                handle, {key.replace("__", "."): value for key, value in changes.items()}, reason="test"
            )

    def end(self) -> None:
        with open_job(JOB) as handle:
            if handle.election.holder() is not None:
                handle.requests.stop(5, "the test is over")
        for process in self._coordinators:
            print(process.communicate(timeout=patient(30))[1])


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(tmp_path)
    monkeypatch.setenv("GRETE_HOME", str(made.home))
    yield made
    made.end()


def container_pids(handle: JobHandle) -> dict[str, int]:
    return {key: int(record.handle.split("/")[1]) for key, record in read_launches(handle.stream).items()}


def spoke_since(job: Job, count: int, tasks: Sequence[str] = ("0", "1", "2", "3")) -> bool:
    return {one["task"] for one in job.said()[count:]} == {f"Partition {task}" for task in tasks}


def turns(job: Job) -> list[int]:
    """How often each task changed hands. Two writers of one task at a time would take turns at every batch."""
    last: dict[str, tuple[str, str]] = {}
    changes: dict[str, int] = {}
    for one in job.said():
        speaker = (one["container"], one["epoch"])
        if last.setdefault(one["task"], speaker) != speaker:
            changes[one["task"]] = changes.get(one["task"], 0) + 1
        last[one["task"]] = speaker
    return list(changes.values())


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


def test_more_containers_and_fewer_move_tasks_and_never_share_one(job: Job) -> None:
    job.submit()
    job.eventually(lambda: len(job.last()) == 4)
    for count in ("3", "2", "4", "1"):
        job.set(job__container__count=count)
        job.eventually(lambda n=int(count): len({who for who, _ in job.last().values()}) == n)  # type: ignore[misc]
    assert max(turns(job)) <= 4
    assert job.events().count("reconfigured") == 4


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
    with open_job(JOB) as handle:
        assert {
            message.values["serial"]
            for message in handle.stream.messages("grete-container").values()
            if message.values
        } == {"1"}


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
