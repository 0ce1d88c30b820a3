"""A function of a pipeline that failed on an executor: what it raised, where, and whether a module is what it lacks.

Spark hands the text of a function's error to the driver without the place, which is known behind its pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from grete.errors import ApplicationError, ConfigError, GreteError, JobError
from grete.spark.jvm import gateway_of, java_context, jvm_of
from grete.text_logs import shortened

_FROM_WORKER = "An exception was thrown from the Python worker"
_FRAME = re.compile(r'^ *File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)$', re.MULTILINE)
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$", re.MULTILINE)
_MISSING = re.compile(r"No module named '([^']+)'")
_TASKS = 10_000
_EVENTS_MS = 2_000


def raised_by_function(text: str, find_place: Callable[[], str], *, has_worked: bool) -> GreteError | None:
    """The error of a function, from the text that Spark has of it; None where no Python worker has raised it.

    `find_place` says on which executor. Where a module cannot be imported, another attempt is of no use unless
    batches went well before (`has_worked`): then the machine has changed, and a container begins again.
    """
    _, is_there, trace = text.partition(_FROM_WORKER)
    frames = list(_FRAME.finditer(trace))
    raised = _RAISED.search(trace, frames[-1].end() if frames else 0)
    if not is_there or raised is None:
        return None
    place = find_place()
    found = _import_failed(raised, [frame for frame in frames if frame["name"] == "<module>"], place)
    if found is None:
        return JobError(
            f"a function of the pipeline failed on {place}: {raised[0]}\n{shortened(trace, 4000)}"
        )
    if has_worked:
        return JobError(f"{found}. Batches before this one went well, so the container begins again")
    return found


def _import_failed(raised: re.Match[str], modules: list[re.Match[str]], place: str) -> GreteError | None:
    missing = _MISSING.search(raised["message"] or "") if raised["type"] == "ModuleNotFoundError" else None
    if missing is not None:
        return ConfigError(
            f"there is no module {missing[1]!r} on {place}, and a function of the pipeline needs it: put it into the "
            f"folder of job.application.path, which is brought to executors, or into the environment that they have "
            f"(job.application.environment with job.split.deployment.enabled=true)"
        )
    if not modules:
        return None
    return ApplicationError(
        f"a module that a function of the pipeline needs cannot be imported on {place}: {raised[0]} "
        f"({modules[-1]['file']}, line {modules[-1]['line']}); mend the module, or what it needs there"
    )


def place_of_failure(context: SparkContext) -> str:
    """The host and executor of the last failure of the last stage that failed."""
    try:
        found = _last_failed_task(context)
    except Py4JError:  # none of this is a promise of Spark's
        found = None
    return "an executor" if found is None else f"{found.host()} (executor {found.executorId()})"


def _last_failed_task(context: SparkContext) -> Any:
    jvm, gateway, spark = jvm_of(context), gateway_of(context), java_context(context).sc()
    spark.listenerBus().waitUntilEmpty(_EVENTS_MS)
    failed = jvm.java.util.ArrayList([jvm.org.apache.spark.status.api.v1.StageStatus.FAILED])
    nothing = gateway.new_array(jvm.double, 0), jvm.java.util.ArrayList()
    store = spark.statusStore()
    stages = _items(store.stageList(failed, False, False, *nothing))
    if not stages:
        return None
    stage = max(stages, key=lambda one: one.stageId())
    tasks = _items(store.taskList(stage.stageId(), stage.attemptId(), _TASKS))
    return next((task for task in reversed(tasks) if task.status() == "FAILED"), None)


def _items(found: Any) -> list[Any]:
    return [found.apply(index) for index in range(found.size())]
