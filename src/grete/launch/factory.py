"""The launcher that `job.launcher` names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grete.config import aliases
from grete.config.choices import LauncherChoice
from grete.config.key_tables.job import LAUNCHER
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.launch.base import Launcher, RunContainer
from grete.registry import load_object

BUILT_IN = {
    "process": "grete.launch.process:open_launcher",
    "spark_submit": "grete.launch.spark_submit:open_launcher",
    "thread": "grete.launch.thread:open_launcher",
}
"""A function from a LaunchContext to a Launcher; plug-ins are entry points of `grete.launchers`."""


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """The values that a launcher is opened with.

    A container is a program, `command`, or a call of `run` in this process. `logs` is the folder of their logs.
    """

    settings: Settings
    command: Sequence[str]
    run: RunContainer
    logs: Path


def open_launcher(context: LaunchContext) -> Launcher:
    """Open it.

    Raises:
        ConfigError: the name is not known, the launcher misses a setting, or the job is one of stream processors.
    """
    name = context.settings.job.launcher
    if context.settings.job.is_of_processors:
        raise ConfigError(
            f"{LAUNCHER.name}={name}: the job is run by the processes that join it; start a grete.StreamProcessor "
            f"with its configuration, or set {LAUNCHER.name}=process to let `grete run` start containers"
        )
    if name == LauncherChoice.KUBERNETES:
        raise ConfigError(
            f"{LAUNCHER.name}={name}: containers are pods beside a coordinator that runs in one; use `grete deploy "
            f"apply`, or set {LAUNCHER.name}=process to let this coordinator start them here"
        )
    made = load_object(aliases.LAUNCHERS, name, built_in=BUILT_IN, used_by=LAUNCHER.name)(context)
    assert isinstance(made, Launcher), f"{name!r} made no Launcher"
    return made
