"""The contract of launchers on every back end."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from grete.config.properties import parse_properties
from grete.environment import CONTAINER_EPOCH, EXIT_FILE
from grete.errors import ConfigError
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.launch.process import ProcessLauncher
from grete.launch.processes import children_of, is_running, name_of
from grete.launch.spark_submit import SparkSubmitLauncher, find_spark_submit
from grete.launch.thread import ThreadLauncher
from grete.model.ending import ExitCode
from grete.model.ids import ContainerId
from grete.testing.conformance.launch import KillingLauncherConformance, LauncherConformance, behave
from grete.testing.waiting import eventually, patient


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


SUBMIT = """#!{python}
import subprocess, sys
words = sys.argv[1:]
[main] = [place for place, word in enumerate(words) if word.endswith(".py")]
code = subprocess.run([sys.executable, *words[main:]]).returncode
sys.exit(code if code >= 0 else 128 - code)
"""
"""Does to a driver what Spark's own does, without a JVM."""


class TestSparkSubmitLauncher(KillingLauncherConformance):
    """As the real one is in tests/fault/test_spark_submit.py."""

    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Iterator[Launcher]:
        yield from submitting(tmp_path, [sys.executable, "-m", "grete.testing.conformance.launch"])

    @pytest.fixture
    def another(self, launcher: Launcher, tmp_path: Path) -> Iterator[Launcher]:
        yield from submitting(tmp_path, [sys.executable, "-m", "not.adopted"])


def test_a_driver_ends_with_the_process_that_was_killed(tmp_path: Path) -> None:
    """A container that nobody watches would go on to read and commit."""
    endless = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with contextlib.contextmanager(submitting)(tmp_path, endless) as launcher:
        launcher.start(ContainerStart(ContainerId("0"), 1, {"PYTHONUNBUFFERED": "1"}))
        submitted = launcher.process_id(ContainerId("0"))
        assert submitted is not None
        eventually(lambda: children_of(submitted), "the driver")
        [name] = [str(name_of(driver)) for driver in children_of(submitted)]
        log = tmp_path / "logs" / "container-0.log"
        eventually(lambda: "Serving HTTP" in log.read_text(), "its work", context=log.read_text)
        launcher.kill(ContainerId("0"))
        eventually(lambda: not is_running(name), "the driver's end")


def submitting(folder: Path, command: Sequence[str]) -> Iterator[SparkSubmitLauncher]:
    program = folder / "spark-submit"
    program.write_text(SUBMIT.format(python=sys.executable))
    program.chmod(0o700)
    launcher = SparkSubmitLauncher(str(program), command, {"spark.master": "local"}, folder / "logs")
    yield launcher
    launcher.close()


def test_settings_are_submitted_in_a_private_file_without_those_that_refer_to_secrets(tmp_path: Path) -> None:
    options = {"spark.master": "spark://one:7077", "spark.x.password": "${env:PASSWORD}"}
    launcher = SparkSubmitLauncher(
        "true", [sys.executable, "-P", "-m", "a.module"], options, tmp_path / "logs"
    )
    launcher.start(ContainerStart(ContainerId("0"), 1, {}))
    launcher.close()
    properties = tmp_path / "logs" / "spark-submit.properties"
    written = parse_properties(properties.read_text(), origin="written")
    assert written == {"spark.master": "spark://one:7077", "spark.pyspark.driver.python": sys.executable}
    assert properties.stat().st_mode & 0o077 == 0


def test_a_machine_without_spark_submit_is_told_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/bin/spark-submit is no program: set SPARK_HOME"):
        find_spark_submit({"SPARK_HOME": str(tmp_path)})


@pytest.mark.parametrize("code", [0, int(ExitCode.STOPPED)])
def test_an_end_in_order_that_the_container_did_not_report_is_a_failure(tmp_path: Path, code: int) -> None:
    """As of an application that calls `os._exit(0)`: it was believed, and the job was done."""
    launcher = ProcessLauncher(["sh", "-c", f"exit {code}"], tmp_path)
    launcher.start(ContainerStart(ContainerId("0"), 4, {}))
    found: list[ContainerExit] = []
    eventually(lambda: found.extend(launcher.exits()) or found, "its exit")
    assert found[0].exit_code == ExitCode.FAILED
    assert f"its process ended with code {code}, and not by the container" in found[0].reason


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


def test_a_process_is_adopted_in_the_moment_of_its_start(tmp_path: Path) -> None:
    """Before its program is set up Linux shows an empty environment, in one of fifty starts."""
    launcher, another = (ProcessLauncher(["sleep", "3600"], tmp_path) for _ in range(2))
    try:
        for epoch in range(1, 301):
            container = ContainerStart(ContainerId("0"), epoch, {})
            launcher.start(container)
            assert another.adopt(container, launcher.handle(ContainerId("0")))
    finally:
        for one in (another, launcher):
            one.close()


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
