"""The contract of launchers on every back end."""

from __future__ import annotations

import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from grete.environment import CONTAINER_EPOCH, EXIT_FILE
from grete.launch.base import ContainerStart, Launcher
from grete.launch.process import ProcessLauncher
from grete.launch.processes import name_of
from grete.launch.thread import ThreadLauncher
from grete.model.ids import ContainerId
from grete.testing.conformance.launch import KillingLauncherConformance, LauncherConformance, behave
from grete.testing.waiting import patient


class TestProcessLauncher(KillingLauncherConformance):
    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Iterator[Launcher]:
        command = [sys.executable, "-m", "grete.testing.conformance.launch"]
        launcher = ProcessLauncher(command, tmp_path / "logs")
        yield launcher
        launcher.close()

    @pytest.fixture
    def another(self, launcher: Launcher, tmp_path: Path) -> Iterator[Launcher]:
        another = ProcessLauncher(
            [sys.executable, "-c", "raise SystemExit('not adopted')"], tmp_path / "logs"
        )
        yield another
        another.close()


@pytest.mark.parametrize(
    ("exit_file", "epoch"), [("", 4), ("container-0.exit.json", 5), ("container-1.exit.json", 4)]
)
def test_a_process_that_is_not_provably_the_container_is_neither_adopted_nor_signalled(
    tmp_path: Path, exit_file: str, epoch: int
) -> None:
    """A writer of the coordinator stream decides which process a container is: it may be any user's."""
    launcher, start = ProcessLauncher(["true"], tmp_path), ContainerStart(ContainerId("0"), 4, {})
    environment = {
        **os.environ,
        CONTAINER_EPOCH: str(epoch),
        **({EXIT_FILE: str(tmp_path / exit_file)} if exit_file else {}),
    }
    other = subprocess.Popen(["sleep", "60"], env=environment)
    try:
        assert not launcher.adopt(start, str(name_of(other.pid)))
        launcher.kill(ContainerId("0"))
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def readable(descriptors: Sequence[int], within_s: float) -> bool:
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(within_s * 1000))


def test_a_process_is_adopted_by_one_that_has_many_files_open(tmp_path: Path) -> None:
    """More than select() can wait for."""
    container = ContainerStart(ContainerId("0"), 4, {})
    launcher, another = (ProcessLauncher(["sleep", "3600"], tmp_path) for _ in range(2))
    launcher.start(container)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4_096, hard)), hard))
    files = [os.dup(0) for _ in range(1_100)]
    try:
        assert another.adopt(container, launcher.handle(ContainerId("0")))
        another.kill(ContainerId("0"))
        assert readable(another.descriptors(), patient(60))
        assert [exit_.epoch for exit_ in another.exits()] == [4]
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        launcher.close()


def test_a_process_that_ends_wakes_who_waits_for_it(tmp_path: Path) -> None:
    """One of its own, and one that it has adopted."""
    container = ContainerStart(ContainerId("0"), 4, {})
    launcher, another = (ProcessLauncher(["sleep", "3600"], tmp_path) for _ in range(2))
    launcher.start(container)
    assert another.adopt(container, launcher.handle(ContainerId("0")))
    assert not readable([*launcher.descriptors(), *another.descriptors()], 0)
    launcher.kill(ContainerId("0"))
    for one in (another, launcher):
        assert readable(one.descriptors(), patient(60))
        assert [exit_.epoch for exit_ in one.exits()] == [4]
        assert one.descriptors() == []


class TestThreadLauncher(LauncherConformance):
    CAN_ADOPT = False

    @pytest.fixture
    def launcher(self) -> Iterator[Launcher]:
        launcher = ThreadLauncher(behave)
        yield launcher
        launcher.close()
