"""Whether the application can be loaded, before anything is started for it."""

from __future__ import annotations

import logging

import grete
from grete.api import DataFramePipeline, StreamTask
from grete.application.beside import other_gretes
from grete.application.load import check_class, find_modules_in, load_class
from grete.application.side_inputs import processor_of
from grete.config.key_tables.job import APP_CLASS, TASK_CLASS
from grete.config.settings import Settings
from grete.tasks.isolated.worker import IsolatedApplication, minimal_hello

_log = logging.getLogger("grete.container")


def check_application(settings: Settings) -> None:
    """Find out, before anything is started for it, whether the application can be loaded.

    A pipeline with an environment of its own is loaded when it builds, by the process that it builds in.

    Raises:
        ConfigError: it cannot be found, or is not of that kind.
        ApplicationError: its module fails while it is imported.
    """
    job = settings.job
    folder = job.application_path
    if job.is_isolated:
        environment = job.application_environment
        for version, place in other_gretes(environment, grete.__version__):
            _log.warning(
                "%s has grete %s; its application gets the API of this grete, %s",
                place,
                version,
                grete.__version__,
            )
        if not job.is_pipeline:
            said = minimal_hello(settings, job.task_class or "", job.modules_folder)
            IsolatedApplication(said, folder, environment).close()
        return
    find_modules_in(folder)
    key, path = (
        (APP_CLASS.name, job.application_class) if job.is_pipeline else (TASK_CLASS.name, job.task_class)
    )
    for store, (_, processor) in settings.side_inputs.items():
        processor_of(store, processor)
    found = load_class(path or "", key)
    check_class(found, DataFramePipeline if job.is_pipeline else StreamTask, key, path or "")
