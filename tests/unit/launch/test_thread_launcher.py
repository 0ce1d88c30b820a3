"""Containers as threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from grete.config.derived import canonical_keys
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.environment import IN_PROCESS
from grete.errors import ConfigError
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.launch.factory import LaunchContext, open_launcher
from grete.launch.process import ProcessLauncher
from grete.launch.thread import ThreadLauncher
from grete.model.ids import ContainerId

ZERO = ContainerId("0")


def ended(launcher: ThreadLauncher) -> list[ContainerExit]:
    launcher._running[ZERO].thread.join(30)
    return launcher.exits()


def test_a_container_runs_until_it_is_asked_to_stop_and_its_end_is_reported_once() -> None:
    seen: list[Mapping[str, str]] = []

    def run(environment: Mapping[str, str], stop: threading.Event) -> int:
        seen.append(environment)
        return 0 if stop.wait(30) else 1

    launcher = ThreadLauncher(run)
    launcher.start(ContainerStart(ZERO, 7, {"A": "1"}))
    launcher.start(ContainerStart(ZERO, 7, {"A": "again"}))
    assert launcher.exits() == []
    launcher.request_stop(ContainerId("unknown"))
    launcher.request_stop(ZERO)
    assert ended(launcher) == [ContainerExit(ZERO, 7, 0, "")]
    assert launcher.exits() == []
    assert [dict(environment) for environment in seen] == [{"A": "1", IN_PROCESS: "1"}]


def test_a_crash_is_an_exit_with_its_reason() -> None:
    def run(environment: Mapping[str, str], stop: threading.Event) -> int:
        raise RuntimeError("out of luck")

    launcher = ThreadLauncher(run)
    launcher.start(ContainerStart(ZERO, 1, {}))
    assert ended(launcher) == [
        ContainerExit(ZERO, 1, 1, "RuntimeError out of luck (test_thread_launcher.py:50)")
    ]


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, ProcessLauncher),
        ({"job.launcher": "Thread"}, ThreadLauncher),
        ({"job.factory.class": "org.apache.samza.job.local.ThreadJobFactory"}, ThreadLauncher),
        ({"job.factory.class": "org.apache.samza.job.yarn.YarnJobFactory"}, ProcessLauncher),
    ],
)
def test_the_launcher_is_the_one_that_is_configured(
    config: dict[str, str], kind: type[Launcher], tmp_path: Path
) -> None:
    settings = Settings.of(canonical_keys(config))
    launcher = open_launcher(LaunchContext(settings, ["true"], lambda environment, stop: 0, tmp_path))
    assert isinstance(launcher, kind)
    assert launcher.outlives_coordinator == (kind is ProcessLauncher)


def test_a_launcher_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    settings = Settings.of({"job.launcher": "cluster"})
    with pytest.raises(ConfigError, match="none of process, spark_submit, thread"):
        open_launcher(LaunchContext(settings, ["true"], lambda environment, stop: 0, tmp_path))


def test_what_is_not_built_is_refused_with_the_way_out() -> None:
    base = {"job.name": "j", "task.class": "a:B", "task.inputs": "local.in"}
    for key, value, way_out in (
        ("job.standbytasks.replication.factor", "2", "nothing to keep copies of"),
        ("job.systemstreampartition.matcher.class", "org.example.Matcher", "remove the key"),
        ("job.launcher", "thread", "job.launcher=process"),
    ):
        errors = check({**base, "job.container.count": "2", key: value}).errors
        assert any(key in error and way_out in error for error in errors), errors
    assert check(base).errors == ()
