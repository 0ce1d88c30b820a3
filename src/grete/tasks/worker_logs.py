"""Log records of Spark's Python workers: to the container's log, and to the job's log stream where one is configured.

A worker is killed without a word when Spark ends or has no use for it. So what was logged is written when a share of
a batch is committed, on a thread of its own, and no batch waits for that. After a failure Spark ends the worker at
once: then the worker waits, for a moment, since its last lines matter most.
"""

from __future__ import annotations

import logging
import os

from grete.diagnostics.log_handler import StreamLogHandler, log_handler
from grete.tasks.spec import RunnerSpec
from grete.text_logs import log_as, log_to_stderr

_FAILED_TIMEOUT_S = 2.0
_MOST_NAMED = 8
_handler: StreamLogHandler | None = None


def attach_logs(spec: RunnerSpec) -> None:
    """Let this process log for a container, no longer for another one."""
    global _handler  # one Python worker serves one container at a time, as for its tasks
    log_as(job=spec.job, tasks=", ".join(task.name for task in spec.tasks[:_MOST_NAMED]))
    root = logging.getLogger()
    if _handler is not None:
        root.removeHandler(_handler)
        _handler.close()
        _handler = None
    if not root.handlers:
        # without a handler Python prints warnings alone, bare: `logging.info` of a task was in no log
        log_to_stderr(os.environ.get("GRETE_LOG_LEVEL", "INFO"))
    if spec.diagnostics is None or spec.diagnostics.logs is None:
        return
    _handler = log_handler(spec.diagnostics, spec.settings)
    if _handler is not None:
        root.addHandler(_handler)


def flush_logs() -> None:
    """Wait until what was logged is written, at most two seconds."""
    if _handler is not None:
        _handler.flush_to_stream(_FAILED_TIMEOUT_S)


def hurry_logs() -> None:
    """Let what was logged be written soon."""
    if _handler is not None:
        _handler.hurry()
