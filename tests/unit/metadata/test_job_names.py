"""Jobs whose names read alike: each command means the one that it names, and nothing of one is the other's."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from grete.assembly import RunOptions, run_job
from grete.assembly.job_names import OldNames, refuse_shared_changelogs
from grete.assembly.submission import Submission
from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.memory import MemoryCoordination
from grete.errors import Fenced, HeldByOther, JobError, StreamNotFound
from grete.keyed_log.memory import MemoryKeyedLog
from grete.keyed_log.sqlite_coordinator_log import FILE_NAME
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_index import claim_stream
from grete.metadata.launches import LaunchRecord, write_launch
from grete.model.fence import Fence, container_fence, job_scope
from grete.model.ids import ContainerId, JobId
from grete.operations import open_job
from grete.sqlite_file import open_file
from grete.systems.local.system import LocalSystem

UNDERSCORE, DASH = JobId("my_job"), JobId("my-job")
ONE, OTHER = JobId("x", "y-1"), JobId("x-y", "1")
"""Samza gives both the changelog `x-y-1-counts-changelog`."""
Output = pytest.CaptureFixture[str]


def configured(job: JobId, **more: str) -> dict[str, str]:
    return {
        "job.name": job.name,
        "job.id": job.id,
        "task.class": "x:X",
        "task.inputs": "local.in",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def submitted(home: Path, job: JobId, **more: str) -> None:
    """A job that was submitted, as far as its stream and the home know."""
    with closing(open_file(home / "local" / FILE_NAME)) as file:
        claim_stream(file, job)
    with open_job(job, must_exist=False) as handle:
        handle.stream.write_config(configured(job, **more), run_id="run")


def file_of(home: Path, job: JobId, **more: str) -> str:
    path = home / f"{job.key}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in configured(job, **more).items()))
    return str(path)


@pytest.fixture
def stream() -> CoordinatorStream:
    clock = SystemClock()
    return CoordinatorStream(MemoryKeyedLog(clock), clock, source="test")


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["stop"],
        ["drain"],
        ["history"],
        ["config", "get"],
        ["config", "set", "my.key=1"],
        ["checkpoint", "show"],
        ["job-model"],
        ["container", "list"],
        ["run"],
    ],
)
def test_no_command_takes_a_job_for_the_one_whose_stream_has_its_name(
    home: Path, capsys: Output, command: list[str]
) -> None:
    submitted(home, UNDERSCORE)
    assert main([*command, "--job", "my-job"]) == 1
    assert capsys.readouterr().err == f"grete: there is no job my-job in {home}; did you mean my_job?\n"


def test_a_job_is_still_its_own_when_a_foreign_record_gives_it_another_name(home: Path) -> None:
    from grete.metadata.assignments import TaskAssignments
    from grete.metadata.config_in_force import ConfigInForce

    submitted(home, UNDERSCORE)
    with open_job(UNDERSCORE) as handle:
        TaskAssignments(handle.stream).write(ConfigInForce(handle.stream).records(handle.config()))
        handle.stream.change_config({"job.name": "another"}, run_id="run")
    with open_job(UNDERSCORE) as handle:
        assert handle.config()["job.name"] == "another"


def test_what_is_a_jobs_own_has_a_name_of_its_own(home: Path) -> None:
    zero = ContainerId("0")
    assert Settings.of({}).job.state_directory(ONE, home) != Settings.of({}).job.state_directory(OTHER, home)
    assert container_fence(ONE, zero, 1).scope != container_fence(OTHER, zero, 1).scope
    assert job_scope(ONE) != job_scope(OTHER)


def test_a_job_whose_id_holds_no_dash_is_called_as_ever() -> None:
    assert (OTHER.key, JobId("my.job", "2").key) == ("x-y-1", "my.job-2")


@pytest.mark.parametrize("more", [{}, {"stores__counts__factory": "grete.store.sqlite"}])
def test_a_job_does_not_begin_anew_in_another_coordinator_stream(
    home: Path, tmp_path: Path, more: dict[str, str]
) -> None:
    submitted(home, OTHER, **more)
    path = file_of(home, OTHER, systems__local__path=str(tmp_path / "elsewhere"), **more)
    with pytest.raises(JobError, match=r"was submitted with its coordinator stream elsewhere .* job delete"):
        run_job(RunOptions(config_paths=[path]))
    with open_job(OTHER) as handle:
        assert "systems.local.path" not in handle.config()


def test_two_who_submit_a_new_job_at_once_do_not_take_each_other_for_one_that_was_moved(home: Path) -> None:
    """The second finds an empty stream, and what the first has written right afterwards."""
    path = {"systems__local__path": str(home / "local")}
    submitted(home, OTHER, **path)
    with ExitStack() as stack:
        second = Submission(RunOptions(config=configured(OTHER, **path)), home, SystemClock(), stack)
        second.job = OTHER
        second._refuse_moved(Settings.of(configured(OTHER, **path)))


def test_a_job_that_is_moved_to_other_inputs_may_begin_anew_there(home: Path, tmp_path: Path) -> None:
    submitted(home, OTHER)
    elsewhere = {
        "systems__other__path": str(tmp_path / "elsewhere"),
        "systems__other__samza__factory": "local",
    }
    moved = {"job__coordinator__system": "other", "task__inputs": "other.in"}
    path = file_of(home, OTHER, **elsewhere, **moved)
    with pytest.raises(StreamNotFound, match="'in'"):
        run_job(RunOptions(config_paths=[path]))


@pytest.mark.parametrize(("other", "store"), [(OTHER, "counts"), (JobId("x", "y"), "1-counts")])
def test_a_job_that_would_share_a_changelog_is_refused_before_anything_is_written(
    home: Path, other: JobId, store: str
) -> None:
    submitted(home, other, **{f"stores__{store}__factory": "grete.store.sqlite"})
    path = file_of(home, ONE, stores__counts__factory="grete.store.sqlite")
    with pytest.raises(JobError, match="would share the changelog 'x-y-1-counts-changelog'"):
        run_job(RunOptions(config_paths=[path]))
    with open_job(ONE, must_exist=False) as handle:
        assert handle.config() == {}


def test_a_changelog_that_another_job_names_is_not_shared_with_it(home: Path, system: LocalSystem) -> None:
    named = {"stores.s.factory": "grete.store.sqlite", "stores.s.changelog": "local.totals"}
    submitted(home, JobId("orders"), **named)
    path = file_of(home, JobId("views"), **named)
    with pytest.raises(JobError, match="the changelog 'totals' of its store 's' with job orders"):
        run_job(RunOptions(config_paths=[path]))
    with pytest.raises(JobError, match="there is no job views"), open_job(JobId("views")):
        raise AssertionError("nothing of it is written")


def test_a_job_that_cannot_be_read_keeps_no_other_from_starting(home: Path) -> None:
    stateful = {"stores.s.factory": "grete.store.sqlite"}
    submitted(home, JobId("odd"), **{**stateful, "stores.s.changelog": "nodot"})
    refuse_shared_changelogs(
        JobId("views"), Settings.of(configured(JobId("views"), **stateful)), home, SystemClock()
    )


def test_a_job_of_an_earlier_version_is_moved_to_its_new_names(
    home: Path, system: LocalSystem, stream: CoordinatorStream
) -> None:
    stream.write_config(configured(ONE), run_id="run")
    write_launch(stream, ContainerId("0"), LaunchRecord(7, 1, "", "", "", "", 7))
    (home / "jobs" / "x-y-1" / "stores").mkdir(parents=True)
    names = OldNames(ONE, stream, home)
    names.check(MemoryCoordination(SystemClock()))
    names.take(Settings.of(stream.config()), system)
    assert (Settings.of({}).job.state_directory(ONE, home) / "stores").is_dir()
    with pytest.raises(Fenced):  # the old version's container can not commit any more
        system.raise_fence([Fence("container/x-y-1/0", 7)])
    assert not OldNames(ONE, stream, home).are_in_use


def test_a_new_job_has_no_old_names(home: Path, stream: CoordinatorStream) -> None:
    OldNames(ONE, stream, home).note_new()
    stream.write_config(configured(ONE), run_id="run")
    assert not OldNames(ONE, stream, home).are_in_use


def test_what_two_jobs_of_an_earlier_version_shared_is_given_to_none(
    home: Path, stream: CoordinatorStream
) -> None:
    submitted(home, OTHER)
    stream.write_config(configured(ONE), run_id="run")
    with pytest.raises(JobError, match="job x:y-1 and job x-y had the same folder 'x-y-1'"):
        OldNames(ONE, stream, home).check(MemoryCoordination(SystemClock()))


def test_a_job_that_an_earlier_version_runs_is_left_to_it(home: Path, stream: CoordinatorStream) -> None:
    stream.write_config(configured(ONE), run_id="run")
    election = MemoryCoordination(SystemClock())
    election.campaign("job/x-y-1")
    with pytest.raises(HeldByOther, match="an earlier version"):
        OldNames(ONE, stream, home).check(election)
