"""`grete run --dry-run`: what a submit would run, worked out without leading, writing or creating anything.

The configuration, the inputs and the job model are looked at here; the application is loaded, and a pipeline's plan
built, in a process like a container's (`grete.spark.dry_run`): in its folder, with its environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grete.assembly.submission import RunOptions, submitted_settings
from grete.clock import SystemClock
from grete.config.key_tables.job import LINEAGE_DIR, STATE_DIR
from grete.config.secrets import variables
from grete.config.settings import Settings
from grete.config.time_zone import TIME_ZONE, with_time_zone
from grete.coordinator.job_model import Remembered, calculate
from grete.environment import CONFIGURED, HOME, grete_home
from grete.errors import ApplicationError, ConfigError, JobError, JobNotFound, StreamNotFound
from grete.launch.process import container_environment
from grete.model.ending import ExitCode
from grete.model.ids import JobId, SystemStream
from grete.model.job import ContainerModel, JobModel
from grete.operations import open_job
from grete.spark.session.versions import check_installed
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.systems.outputs import OutputSystems, not_declared
from grete.wire.container_protocol import AssignmentMessage, PendingRequest, Task, document

_COMMAND = (sys.executable, "-P", "-m", "grete.spark.dry_run")
_TIMEOUT_S = 600.0
_SHOWN_LINES = 12


@dataclass(frozen=True, slots=True)
class Planned:
    """What would run. Inputs and outputs with their numbers of partitions, 0 for an output that would be created, and
    the format of one that is no stream, empty for what the application writes itself.

    `plan` is Spark's physical plan of each output, and `output_mode` how it is written; a StreamTask has neither.
    """

    job: JobId
    application: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int | str]
    containers: int
    tasks: int
    output_mode: str = ""
    plan: Mapping[str, str] | None = None
    settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Spark's settings that nobody has asked for and that plain Spark has otherwise: value and reason."""


def dry_run(options: RunOptions) -> Planned:
    """Work out what `grete run` would run. Reads the systems of the inputs and outputs, and writes nothing there.

    Raises:
        ConfigError: as `grete run` would refuse the configuration; or there is none (`--config`).
        StreamNotFound: inputs that do not exist, or an output that nothing would create.
        ApplicationError: the application cannot be loaded, or Spark refuses its plan, in Spark's words.
        JobError: the process that tries it did not answer.
    """
    if not options.config_paths:
        raise ConfigError("--dry-run goes with --config FILE: it tries what has not been submitted yet")
    home, clock = grete_home(), SystemClock()
    submitted = submitted_settings(options, home, clock)
    settings = with_time_zone(submitted, _in_force(submitted))
    check_installed(settings)
    with ExitStack() as stack:
        own = settings.task.commit_system
        names = {own, *(stream.system for stream in settings.task.all_inputs)}
        systems = {
            name: stack.enter_context(closing(open_system(settings, name, home, clock))) for name in names
        }
        inputs = _input_partitions(settings, systems)
        model = calculate(settings, inputs, Remembered()).model
        found = tried(settings, model, home)
        opened = stack.enter_context(closing(OutputSystems(settings, own, systems[own], home, clock)))
        outputs = _outputs(settings, opened, found)
    return Planned(
        settings.job.id,
        settings.job.application_class or settings.job.task_class or "",
        {str(stream): count for stream, count in inputs.items()},
        outputs,
        len(model.containers),
        len(model.tasks),
        found.get("output_mode", ""),
        found.get("plan"),
        _zone(submitted, settings) | {key: (value, why) for key, (value, why) in found["settings"].items()},
    )


def _in_force(submitted: Settings) -> Settings | None:
    """The settings that the job has, None of one that was never submitted."""
    try:
        with open_job(submitted.job.id, submitted) as handle:
            return handle.settings
    except JobNotFound:
        return None


def _zone(submitted: Settings, settings: Settings) -> dict[str, tuple[str, str]]:
    """The time zone, where nobody has named one."""
    zone = settings.spark.time_zone
    if zone is None or submitted.spark.time_zone is not None:
        return {}
    return {
        TIME_ZONE: (zone, "Spark's where the job is first submitted, and kept: name it in the configuration")
    }


def _input_partitions(settings: Settings, systems: Mapping[str, System]) -> dict[SystemStream, int]:
    found, missing = dict[SystemStream, int](), []
    for stream in settings.task.all_inputs:
        try:
            found[stream] = systems[stream.system].partition_count(stream.stream)
        except StreamNotFound as error:
            missing.append(f"input {stream}: {error}")
    if missing:
        raise StreamNotFound("\n".join(missing))
    return found


def _outputs(
    settings: Settings, systems: OutputSystems, application: Mapping[str, Any]
) -> dict[str, int | str]:
    declared, named = settings.task.written_streams, application.get("streams", {})
    found: dict[str, int | str] = {}
    for stream in dict.fromkeys([*declared, *(SystemStream.parse(name) for name in named.values() if name)]):
        system, name = systems.written(stream)
        try:
            found[str(stream)] = system.partition_count(name)
        except StreamNotFound as error:
            if stream not in declared:
                raise not_declared(stream, error) from error
            found[str(stream)] = 0
    configured = settings.outputs
    others = [name for name, stream in named.items() if stream is None]
    return found | {name: configured[name].format if name in configured else "" for name in others}


def tried(settings: Settings, model: JobModel, home: Path, *query: str) -> dict[str, Any]:
    """What the process of the first container finds out about the application; see `grete.spark.dry_run`.

    Raises:
        ConfigError, ApplicationError, JobError: see `dry_run`.
    """
    container = next(iter(model.containers.values()))
    with tempfile.TemporaryDirectory(prefix="grete-dry-run-") as folder:
        assignment = _assignment(settings, container, Path(folder))
        answer = Path(folder) / "answer.json"
        own = {HOME: str(home), CONFIGURED: ",".join(variables(settings.raw))}
        try:
            done = subprocess.run(  # noqa: S603 - our own command, no shell
                [*_COMMAND, str(answer), *query],
                input=json.dumps(document(assignment)),
                env=container_environment(os.environ, own),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise JobError(f"the application was not loaded within {_TIMEOUT_S:.0f} s") from error
        if not answer.exists():
            last = "\n".join(done.stderr.splitlines()[-_SHOWN_LINES:])
            raise JobError(
                f"the process that loads the application ended with code {done.returncode}:\n{last}"
            )
        found: dict[str, Any] = json.loads(answer.read_bytes())
    if "error" in found:
        kind = ConfigError if found["exit_code"] == ExitCode.CONFIG else ApplicationError
        raise kind(found["error"])
    return found


def _assignment(settings: Settings, container: ContainerModel, folder: Path) -> AssignmentMessage:
    """As a coordinator gives it, of a job whose folder is nowhere else."""
    tasks = tuple(Task.of(task, PendingRequest()) for task in container.tasks.values())
    config = {**settings.raw, STATE_DIR.name: str(folder), LINEAGE_DIR.name: str(folder)}
    return AssignmentMessage(
        job=settings.job.id, container_id=container.id, epoch=1, config=config, tasks=tasks
    )
