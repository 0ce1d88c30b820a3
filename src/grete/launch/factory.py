"""The launcher that `job.launcher` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grete.config import aliases
from grete.config.choices import LauncherChoice
from grete.config.key_tables.job import LAUNCHER
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.launch.base import Launcher, RunContainer
from grete.model.ending import ContainerEnd
from grete.model.ids import ContainerId
from grete.registry import load_object

BUILT_IN = {
    "process": "grete.launch.process:open_launcher",
    "spark_submit": "grete.launch.spark_submit:open_launcher",
    "thread": "grete.launch.thread:open_launcher",
}
"""A function from a LaunchContext to a Launcher; plug-ins are entry points of `grete.launchers`."""


LastWords = Callable[[ContainerId, int], ContainerEnd | None]
"""Of a container and the epoch of an incarnation."""


def no_words(container: ContainerId, epoch: int) -> None:
    """Of a coordinator whom no container has told anything."""


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """The values that a launcher is opened with.

    A container is a program, `command`, or a call of `run` in this process. `logs` is the folder of their logs.
    `last_words` are what an incarnation has told the coordinator that it ends with, None where it said nothing.
    """

    settings: Settings
    command: Sequence[str]
    run: RunContainer
    logs: Path
    last_words: LastWords = no_words


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
    if name in (LauncherChoice.KUBERNETES, LauncherChoice.YARN):
        what = "pods" if name == LauncherChoice.KUBERNETES else "applications"
        raise ConfigError(
            f"{LAUNCHER.name}={name}: containers are {what} beside a coordinator that was deployed; use "
            f"`grete deploy apply`, or set {LAUNCHER.name}=process to let this coordinator start them here"
        )
    made = load_object(aliases.LAUNCHERS, name, built_in=BUILT_IN, used_by=LAUNCHER.name)(context)
    assert isinstance(made, Launcher), f"{name!r} made no Launcher"
    return made
