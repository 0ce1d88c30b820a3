"""Whether the application can be loaded, before anything is started for it."""

from __future__ import annotations

from grete.api import DataFramePipeline, StreamTask
from grete.application.load import check_class, find_modules_in, load_class
from grete.config.key_tables.job import APP_CLASS, TASK_CLASS
from grete.config.settings.job import JobSettings
from grete.tasks.isolated.worker import Application, minimal_hello


def check_application(job: JobSettings, kind: type[StreamTask] | type[DataFramePipeline]) -> None:
    """Find out, before anything is started for it, whether the application can be loaded.

    Raises:
        ConfigError: it cannot be found, or is not of that kind.
        ApplicationError: its module fails while it is imported.
    """
    folder = job.application_path
    if job.is_isolated and kind is StreamTask:
        Application(minimal_hello(job.raw, job.task_class or ""), folder).close()
        return
    find_modules_in(folder)
    key, path = (
        (TASK_CLASS.name, job.task_class) if kind is StreamTask else (APP_CLASS.name, job.application_class)
    )
    found = load_class(path or "", key)
    check_class(found, kind, key, path or "")
