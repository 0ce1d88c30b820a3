"""Stopping a job from the command line, and what a coordinator that is gone has left of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.finished_job import CONFIG, JOB, ZERO, Output, opened

from grete.cli.main import main
from grete.errors import Fenced
from grete.launch.base import ContainerStart
from grete.launch.process import ProcessLauncher
from grete.metadata.container_requests import read_container_requests
from grete.metadata.job_state import (
    JobState,
    RequestKind,
    StopRequest,
    read_request,
    read_stop_request,
    write_state,
)
from grete.metadata.launches import LaunchRecord, write_launch
from grete.model.fence import container_epoch, container_fence, job_scope
from grete.model.ids import ContainerId
from grete.operations.configuration import set_config
from grete.systems.local.system import LocalSystem


@pytest.fixture
def orphan(job: Path, system: LocalSystem) -> Iterator[ProcessLauncher]:
    """The launcher of a process that goes on as container 0 of a job whose coordinator died."""
    epoch = container_epoch(1, 1)
    with opened() as handle:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        launcher = ProcessLauncher(command, handle.state_directory / "logs")
        launcher.start(ContainerStart(ZERO, epoch, {"GRETE_CONTAINER_EPOCH": str(epoch)}))
        write_state(handle.stream, JobState("running", "run-1", 1))
        record = LaunchRecord(epoch, 1, launcher.handle(ZERO), "", "", "", epoch)
        write_launch(handle.stream, ZERO, record)
    system.raise_fence([container_fence(JOB, ZERO, epoch)])
    yield launcher
    launcher.close()


def test_what_a_dead_coordinator_has_left_is_shown_fenced_off_and_stopped(
    orphan: ProcessLauncher, system: LocalSystem, capsys: Output
) -> None:
    assert main(["status"]) == 0
    assert "died, 1 container on its own" in capsys.readouterr().out
    assert main(["drain"]) == 1
    assert "grete run --job orders --until-drained" in capsys.readouterr().err
    assert main(["stop", "--reason", "cleaning up"]) == 0
    assert [ended.exit_code for ended in orphan.exits()] == [-signal.SIGTERM]
    with pytest.raises(Fenced):
        system.raise_fence([container_fence(JOB, ZERO, container_epoch(1, 1))])
    with opened() as handle:
        assert handle.launches() == {}
        ended = handle.state()
        assert ended is not None
        assert (ended.state, ended.message) == ("stopped", "cleaning up")
        assert handle.election.holder() is None


@pytest.fixture
def silent(job: Path) -> Iterator[None]:
    """A coordinator whose process is alive, and renews its leadership no more."""
    with opened() as handle:
        set_config(handle, {"job.coordinator.lease.ttl.ms": "1000"}, reason="test")
    with opened() as leader:
        leader.election._coordination.campaign(job_scope(JOB), epoch_floor=1)
        yield


def test_what_a_silent_coordinator_has_left_is_stopped_in_its_place(
    orphan: ProcessLauncher, silent: None, capsys: Output
) -> None:
    assert main(["drain"]) == 1
    assert "grete run --job orders --until-drained" in capsys.readouterr().err
    assert main(["stop", "--reason", "cleaning up"]) == 0
    assert [ended.exit_code for ended in orphan.exits()] == [-signal.SIGTERM]
    assert capsys.readouterr().out == "orders: stopped\n"


def test_stop_of_a_job_whose_silent_coordinator_has_left_nothing_says_who_that_is(
    silent: None, capsys: Output
) -> None:
    assert main(["stop"]) == 1
    assert f"is not running: process {os.getpid()}" in capsys.readouterr().err


def test_one_container_that_a_dead_coordinator_has_left_is_stopped(
    orphan: ProcessLauncher, capsys: Output
) -> None:
    assert main(["container", "stop", "0"]) == 0
    assert [ended.exit_code for ended in orphan.exits()] == [-signal.SIGTERM]
    assert "fenced off and ended" in capsys.readouterr().out


def test_a_stop_goes_to_the_leader_before_its_first_record(job: Path) -> None:
    """While a coordinator starts the recorded state, if there is any, is still that of the run before."""
    zero = ContainerId("0")
    with opened() as leader, opened() as handle:
        leadership = leader.election._coordination.campaign(job_scope(JOB), epoch_floor=1)
        handle.requests.stop(5, "enough")
        handle.requests.drain("enough")
        handle.requests.container(zero, "restart", 5, "odd")
        stop, drain = read_stop_request(handle.stream), read_request(handle.stream, RequestKind.DRAIN)
        [restart] = read_container_requests(handle.stream)
    assert stop is not None
    assert drain is not None
    assert {stop.epoch, drain.epoch, restart.epoch} == {leadership.epoch}


def test_a_job_that_has_just_been_submitted_for_the_first_time_can_be_stopped(
    home: Path, system: LocalSystem
) -> None:
    with opened() as leader, opened() as handle:
        leader.stream.write_config(CONFIG, run_id="run-1", reason="first")
        leadership = leader.election._coordination.campaign(job_scope(JOB))
        handle.requests.stop(5, "enough")
        assert read_stop_request(handle.stream) == StopRequest(leadership.epoch, 5, "enough")


def test_stop_of_a_job_that_does_not_run_fails(job: Path, capsys: Output) -> None:
    assert main(["stop", "--deadline", "1"]) == 1
    assert "is not running" in capsys.readouterr().err
