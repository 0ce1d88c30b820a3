"""Submits that die, meet each other, hang or are stopped. Containers are a small program instead of Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.config.load import load
from grete.config.settings import Settings
from grete.coordination.factory import open_coordination
from grete.failpoints import POINTS
from grete.metadata.config_history import config_generations
from grete.model.fence import job_scope
from grete.model.ids import ContainerId, JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.server.serve import bind
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually, patient

pytestmark = pytest.mark.fault

LEASE, TEN_MINUTES = "job.coordinator.lease.ttl.ms", "600000"
"""None ends in these tests: a disk that is busy for seconds would let a coordinator complain of its renewal."""
_CONTROL = ("submit", "leader", "coordinator", "model", "history", "state", "launch")
PASSES: list[Any] = [(name, 1) for name in POINTS if name.split(".")[0] in _CONTROL]
PASSES += [
    pytest.param(name, nth, marks=pytest.mark.nightly)  # `test_kill_commit` is killed there in every run
    for name in POINTS
    if name.split(".")[0] in ("log", "file")
    for nth in (1, 6)
]
ONCE_IN_A_JOBS_LIFE = "model.mapping-written"
OLD, NEW = {"a": "1", "b": "1"}, {"b": "2", "c": "2"}
CONTAINER = """
import os, signal, sys, time
from pathlib import Path
from typing import Any
from grete.container.assignment import parse_assignment
from grete.exit_report import write_report
from grete.http_client import JobCoordinatorClient
from grete.wire.container_protocol import Heartbeat
client = JobCoordinatorClient(os.environ["COORDINATOR_URL"], Path(os.environ["GRETE_COORDINATOR_TOKEN_FILE"]))
id_, epoch = os.environ["SAMZA_CONTAINER_ID"], int(os.environ["GRETE_CONTAINER_EPOCH"])
assignment = parse_assignment(client.get(f"/api/v1/containers/{id_}"), Path.cwd())
assert assignment.epoch == epoch
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
runs_for_ever = assignment.settings.raw.get("test.for.ever")
while True:
    client.heartbeat(id_, Heartbeat(epoch, "running", batch_id=0, records=1))
    if stopping or not runs_for_ever:
        code = int(assignment.settings.raw.get("test.exit.code", "0"))
        write_report(code)
        sys.exit(code)
    time.sleep(0.02)
"""
RUNNER = """
import sys
from grete.assembly import RunOptions, run_job
from grete.errors import GreteError
from grete.model.ids import JobId

container, take_over, *config = sys.argv[1:]
paths = [path for path in config if not path.startswith("job:")]
jobs = [JobId.parse(path[4:]) for path in config if path.startswith("job:")]
try:
    sys.exit(run_job(RunOptions(config_paths=paths, job=jobs[0] if jobs else None, take_over=take_over == "yes",
                                container_command=(sys.executable, container))))
except GreteError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


class Job:
    """A job whose containers are the program above."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        self._directory = directory
        (directory / "container.py").write_text(CONTAINER)
        (directory / "runner.py").write_text(RUNNER)
        with LocalSystemAt(self.home / "local") as system:
            system.create_stream(StreamSpec("in", 4))

    def config(self, name: str, **settings: str) -> str:
        path = self._directory / f"{name}.properties"
        base = {"job.name": "job", "task.class": "x:X", "task.inputs": "local.in", LEASE: TEN_MINUTES}
        lines = [f"{key}={value}" for key, value in {**base, **settings}.items()]
        path.write_text("\n".join(lines))
        return str(path)

    def start(self, *config: str, take_over: bool = False, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self._directory / "runner.py"), str(self._directory / "container.py")]
        return subprocess.Popen(
            [*command, "yes" if take_over else "no", *config],
            env={**os.environ, "GRETE_HOME": str(self.home), **environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *config: str, take_over: bool = False, **environment: str) -> tuple[int, str]:
        process = self.start(*config, take_over=take_over, **environment)
        _, errors = process.communicate(timeout=patient(60))
        return process.returncode, errors


@contextmanager
def LocalSystemAt(directory: Path) -> Iterator[LocalSystem]:
    system = LocalSystem(directory, SystemClock())
    yield system
    system.close()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(tmp_path)
    monkeypatch.setenv("GRETE_HOME", str(made.home))
    return made


def state() -> str:
    with open_job(JobId("job"), must_exist=False) as handle:
        recorded = handle.state()
        return "" if recorded is None else recorded.state


def test_a_job_runs_to_its_end_and_says_so(job: Job) -> None:
    code, errors = job.run(job.config("a"))
    assert (code, errors) == (0, "")
    with open_job(JobId("job")) as handle:
        assert handle.election.holder() is None
        assert [row.event for row in handle.history()] == ["deployment", "container-exited", "finished"]
        assert set(handle.assignments().values()) == {"0"}
        assert handle.changelog_mapping() == {f"Partition {i}": i for i in range(4)}
    assert state() == "finished"


def letters() -> dict[str, str]:
    with open_job(JobId("job"), must_exist=False) as handle:
        return {key: value for key, value in handle.config().items() if key in "abc"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("point", "nth"), PASSES)
def test_killed_anywhere_in_a_submit_the_next_one_works_and_nothing_is_mixed(
    job: Job, point: str, nth: int
) -> None:
    """Killed twice: in the job's very first submit, and when a changed configuration is submitted."""
    old, new = job.config("old", **OLD), job.config("new", **NEW)
    kill = {"GRETE_FAILPOINT": f"{point}:kill:{nth}"}
    assert job.run(old, **kill)[0] == -signal.SIGKILL, "the point was never reached"
    assert letters() in ({}, OLD)
    assert job.run(old) == (0, "")
    assert job.run(new, **kill)[0] == (0 if point == ONCE_IN_A_JOBS_LIFE else -signal.SIGKILL)
    assert letters() in (OLD, NEW)
    assert job.run(new) == (0, "")
    assert letters() == NEW
    with open_job(JobId("job")) as handle:
        assert handle.changelog_mapping() == {f"Partition {i}": i for i in range(4)}
        generations = [one.message for one in config_generations(handle.coordinator_log)]
        assert all(m.key == "current" for m in generations)


def test_the_stream_alone_is_enough_to_run_again(job: Job) -> None:
    path = job.config("a", keep="me")
    assert job.run(path)[0] == 0
    Path(path).unlink()
    assert job.run("job:job") == (0, "")
    with open_job(JobId("job")) as handle:
        assert handle.config()["keep"] == "me"
        assert [row.event for row in handle.history()].count("attempt") == 1


def test_a_second_copy_is_refused_with_the_holders_name(job: Job) -> None:
    path = job.config("a", **{"test.for.ever": "1"})
    first = job.start(path)
    try:
        eventually(lambda: state() == "running")
        other = job.config("b", changed="yes")
        code, errors = job.run(other)
        assert code == 4
        assert f"process {first.pid}" in errors
        with open_job(JobId("job")) as handle:
            assert "changed" not in handle.config()
    finally:
        first.send_signal(signal.SIGTERM)
        assert first.wait(patient(30)) == 0
    assert state() == "stopped"


def test_of_many_submits_at_once_one_wins_and_the_others_name_it(job: Job) -> None:
    paths = [job.config(f"c{i}", who=str(i), **{"test.for.ever": "1"}) for i in range(6)]
    processes = [job.start(path) for path in paths]
    eventually(lambda: state() == "running" and sum(p.poll() is None for p in processes) == 1)
    [winner] = [i for i, process in enumerate(processes) if process.poll() is None]
    with open_job(JobId("job")) as handle:
        assert handle.config()["who"] == str(winner)
        handle.requests.stop(10, "enough")
    assert processes[winner].wait(patient(30)) == 0
    assert sorted(process.wait(patient(30)) for process in processes) == [0, 4, 4, 4, 4, 4]
    for process in processes:
        assert process.stderr is not None
        process.stderr.close()


def test_a_stop_that_is_asked_for_while_a_job_starts_again_is_obeyed(job: Job) -> None:
    """Recorded then is the end of the run before; the election is newer."""
    assert job.run(job.config("once")) == (0, "")
    settings = {"test.for.ever": "1"}
    again = job.start(job.config("again", **settings), GRETE_FAILPOINT="submit.elected:stop")
    stands = os.waitid(os.P_PID, again.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert stands is not None
    assert stands.si_code == os.CLD_STOPPED
    with open_job(JobId("job")) as handle:
        handle.requests.stop(10, "enough")
    again.send_signal(signal.SIGCONT)
    _, errors = again.communicate(timeout=patient(30))
    assert (again.returncode, errors) == (0, "")
    assert state() == "stopped"


def containers_run() -> bool:
    with open_job(JobId("job"), must_exist=False) as handle:
        launches = handle.launches()
    return bool(launches) and all(record.handle for record in launches.values())


def free_port() -> int:
    with closing(bind("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


def test_a_paused_coordinator_that_was_succeeded_ends_without_effect(job: Job) -> None:
    settings = {"test.for.ever": "1", LEASE: "15000", "job.http.port": str(free_port())}
    first = job.start(job.config("a", owner="first", **settings))
    eventually(containers_run)  # from now on it writes nothing by itself: not paused inside a transaction
    first.send_signal(signal.SIGSTOP)
    second = job.start(job.config("b", owner="second", **settings), take_over=True)
    try:

        def second_runs() -> bool:
            with open_job(JobId("job")) as handle:
                owner = handle.config()["owner"]
            return owner == "second" and state() == "running" and _epoch() == 2

        eventually(second_runs)
        first.send_signal(signal.SIGCONT)
        _, errors = first.communicate(timeout=patient(30))
        assert first.returncode == 5, errors
        with open_job(JobId("job")) as handle:
            assert handle.config()["owner"] == "second"
            recorded = handle.state()
            assert recorded is not None
            assert recorded.state == "running"
    finally:
        second.send_signal(signal.SIGTERM)
        assert second.wait(patient(30)) == 0
        for process in (first, second):
            assert process.stderr is not None
            process.stderr.close()


@pytest.mark.parametrize("is_succeeded", [False, True])
def test_who_loses_its_leadership_while_it_stops_the_job_leads_once_more_to_stop_it_or_says_so(
    job: Job, is_succeeded: bool
) -> None:
    """The other process takes the leadership and gives it back, or keeps it. Meanwhile the container hangs."""
    name = job.config("a", **{"test.for.ever": "1", LEASE: "3000"})
    first = job.start(name)
    eventually(containers_run)
    with open_job(JobId("job")) as handle:
        container = int(handle.launches()[ContainerId("0")].handle.split("/")[1])
    os.kill(container, signal.SIGSTOP)
    first.send_signal(signal.SIGTERM)
    eventually(lambda: "stop-requested" in events())
    settings = Settings.of(load([name], {}))
    with closing(open_coordination(settings, job.home, SystemClock(), ttl_s=3)) as other:
        taken = other.campaign(job_scope(JobId("job")), take_over=True)
        if not is_succeeded:
            other.release(taken)
            eventually(lambda: _epoch() > taken.epoch)
            os.kill(container, signal.SIGCONT)
        _, errors = first.communicate(timeout=patient(60))
    if is_succeeded:
        os.kill(container, signal.SIGKILL)
    assert (first.returncode, state()) == ((5, "running") if is_succeeded else (0, "stopped")), errors


def events() -> list[str]:
    with open_job(JobId("job")) as handle:
        return [row.event for row in handle.history()]


def test_killed_outright_the_job_can_run_again_at_once(job: Job) -> None:
    """Without a wait for the end of its lease."""
    path = job.config("a", **{"test.for.ever": "1"})
    first = job.start(path)
    eventually(lambda: state() == "running")
    first.kill()
    first.communicate()
    second = job.start(path)
    eventually(lambda: second.poll() is None and _epoch() == 2)
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=patient(30))


def _epoch() -> int:
    with open_job(JobId("job")) as handle:
        recorded = handle.state()
        return 0 if recorded is None else recorded.epoch


def test_a_container_that_keeps_failing_fails_the_job_with_its_reason(job: Job) -> None:
    path = job.config("a", **{"test.exit.code": "1", "cluster-manager.container.retry.count": "2"})
    code, errors = job.run(path)
    assert code == 1
    assert "container 0 ended with code 1" in errors
    assert f". Logs: {job.home / 'jobs' / 'job-1' / 'logs'}" in errors
    with open_job(JobId("job")) as handle:
        assert [row.event for row in handle.history()].count("container-exited") == 3
    assert state() == "failed"


@pytest.mark.parametrize(("container", "run"), [(2, 2), (3, 3), (5, 1), (77, 1)])
def test_a_failed_job_ends_with_what_its_container_says_of_the_job(
    job: Job, container: int, run: int
) -> None:
    settings = {"test.exit.code": str(container), "cluster-manager.container.retry.count": "0"}
    code, errors = job.run(job.config("a", **settings))
    assert (code, state()) == (run, "failed")
    assert f"container 0 ended with code {container}" in errors


def test_every_container_of_the_model_runs(job: Job) -> None:
    assert job.run(job.config("a", **{"job.container.count": "3"}))[0] == 0
    with open_job(JobId("job")) as handle:
        exited = {row.details["container"] for row in handle.history() if row.event == "container-exited"}
        assert exited == {"0", "1", "2"}


def test_the_grouper_of_a_stateful_job_is_set_once(job: Job) -> None:
    stores = {"stores.s.factory": "grete.store.sqlite"}
    assert job.run(job.config("a", **stores))[0] == 0
    key = "job.systemstreampartition.grouper.factory"
    name = "org.apache.samza.container.grouper.stream.GroupBySystemStreamPartitionFactory"
    code, errors = job.run(job.config("b", **stores, **{key: name}))
    assert code == 2
    assert key in errors
    assert "job.id" in errors


def test_a_large_configuration_survives(job: Job) -> None:
    large = {f"my.key.{i}": "x" * 500 for i in range(10_000)}
    assert job.run(job.config("a", **large)) == (0, "")
    with open_job(JobId("job")) as handle:
        config = handle.config()
        assert {key: config[key] for key in large} == large


def test_unknown_records_do_not_keep_a_job_from_starting(job: Job) -> None:
    from grete.keyed_log.base import Entry

    assert job.run(job.config("a"))[0] == 0
    with open_job(JobId("job")) as handle:
        garbage = [
            b"",
            b"{",
            b"[1]",
            b'[1,"set-config"]',
            b'[9,"set-config","a"]',
            b'[1,"unknown-type","k"]',
            b"\xff",
        ]
        garbage += [b'[1,"set-config","deep"]', b'[1,"set-config","nan"]', b'["1","set-config","old"]']
        values = [b"x"] * 7 + [b"[" * 100_000, b'{"values":{"value":NaN}}', b'{"values":{"value":"\\ud800"}}']
        garbage += [b'[1,"set-config","key\\ud800"]', b'[1,"grete-input-stream","nodot"]']
        values += [b'{"values":{"value":"1"}}', b'{"values":{"uid":"1"}}']
        handle.coordinator_log.append([Entry(k, v) for k, v in zip(garbage, values, strict=True)])
    assert job.run("job:job") == (0, "")
    with open_job(JobId("job")) as handle:
        assert handle.config()["job.name"] == "job"
        assert len(handle.stream.quarantined) >= 6
        json.dumps(handle.config())


def test_a_configuration_that_makes_no_job_model_is_not_written(job: Job) -> None:
    assert job.run(job.config("good")) == (0, "")
    code, errors = job.run(job.config("bad", **{"job.container.count": "7"}))
    assert code == 2
    assert "7" in errors
    with open_job(JobId("job")) as handle:
        assert "job.container.count" not in handle.config()
