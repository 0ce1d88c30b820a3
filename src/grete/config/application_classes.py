"""Classes of the application that the framework asks while it reads a configuration.

With `job.split.deployment.enabled=true` they are loaded in a process of the application's own, which ends with the
answer; else in this one, since there is one environment for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grete.application.beside import ApplicationProcess, interpreter
from grete.application.load import find_modules_in
from grete.application.plugins import ask
from grete.config.log_levels import levels_beside
from grete.config.settings.job import JobSettings
from grete.errors import JobError


def ask_application(job: JobSettings, method: str, path: str, key: str, value: object) -> Any:
    """The answer of the class `path` that `key` names, see `grete.application.plugins`.

    Raises:
        ConfigError: it cannot be found, or answers with something else.
        ApplicationError: it fails.
    """
    if not job.is_isolated:
        find_modules_in(job.application_path)
        return ask(method, path, key, value)
    environment = job.application_environment
    folder = job.modules_folder
    process = ApplicationProcess(interpreter(environment), folder, shown=f"{key}={path}")
    request = {"method": method, "path": path, "key": key, "value": value, "levels": levels_beside(folder)}
    try:
        return process.load(request, _refuse, verb="ask")
    finally:
        process.close()


def _refuse(verb: str, value: Any, blobs: Sequence[bytes]) -> Any:
    raise JobError(f"the application's process asks for {verb!r} before a task of it runs")
