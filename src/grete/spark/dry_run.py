"""Loads an application as a container does, and builds a pipeline's plan, without running it.

`python -m grete.spark.dry_run FILE [QUERY]` reads an assignment (`wire.container_protocol`) from standard input and
writes a JSON object into FILE: `{"settings": {key: [value, reason]}}`, for a pipeline with `{"output_mode", "plan":
{output: text}, "streams": {output: stream or null}}`, or `{"error", "exit_code"}`. With QUERY, a copy of a query's
checkpoint location (`spark.lineage.query_files`), also `{"lineage": {"plan", "sources", "kept", "misfit"}}`: how a
lineage describes the pipeline, and why it does not fit the query, "" where it does.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

from grete.checkpoint.offset_manager import StartingOffsets
from grete.clock import SystemClock
from grete.config.paths import working_folder
from grete.config.redact import redact_value
from grete.config.settings import Settings
from grete.container.assignment import Assignment, parse_assignment
from grete.container.checkpoints import commit_target
from grete.container.main_loop import enter
from grete.container.offset_publisher import OffsetPublishers
from grete.container.start import Started
from grete.environment import grete_home
from grete.errors import GreteError, MissingExtra
from grete.model.ending import exit_code
from grete.model.fence import Fence, epoch_scope
from grete.systems.factory import open_system
from grete.tasks.application import check_application

_LOCAL = {"spark.master": "local[1]"}
"""A plan needs no executors: nothing is asked of a cluster."""


def tried(assignment: Assignment, home: Path, query: Path | None = None) -> dict[str, Any]:
    """Load the application, and build a pipeline's plan. Nothing is read or written but by the application itself.

    `query`: a copy of a query's checkpoint location, which the plan is compared with.

    Raises:
        ConfigError, ApplicationError: it cannot be loaded, or Spark refuses its plan.
        MissingExtra: without pyspark.
    """
    enter(assignment, home)
    job = assignment.settings.job
    check_application(assignment.settings)
    try:
        from grete.spark.pipeline import plan_text
        from grete.spark.pipeline import run as pipeline_run
        from grete.spark.session import container_session as session
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "spark") from error
    own = _own_settings(assignment, session.kafka_system_of(assignment))
    if not job.is_pipeline:
        return {"settings": own}
    settings, name = assignment.settings, assignment.settings.task.commit_system
    spark = session.build_session(
        f"grete {assignment.job} dry run",
        Settings.of({**settings.raw, **_LOCAL}),
        kafka_system=session.kafka_system_of(assignment),
    )
    with closing(open_system(settings, name, home, SystemClock())) as system:
        begun = Started(
            assignment,
            Fence(epoch_scope(assignment.fence), 0),  # none begins
            system,
            home,
            commit_target(assignment, system, SystemClock()),
            commits={},
            starting=StartingOffsets({}, dict.fromkeys(assignment.ssps, "0")),
            log_end=0,
        )
        with closing(pipeline_run.PipelineRun(spark, begun, Event(), OffsetPublishers())) as run:
            built = run.plan()
            mode = built.output_mode
            plan = {name: plan_text.checked_plan(frame, mode) for name, frame in built.frames.items()}
            lineage = {} if query is None else {"lineage": run.compared(built, query)}
    streams = {name: None if stream is None else str(stream) for name, stream in built.streams.items()}
    return {"output_mode": mode, "plan": plan, "streams": streams, "settings": own, **lineage}


def _own_settings(assignment: Assignment, kafka_system: str | None) -> dict[str, tuple[str, str]]:
    """The settings that nobody has asked for, each with its reason."""
    from grete.spark.session.defaults import reason
    from grete.spark.session.settings import context_settings, session_settings

    settings, name = assignment.settings, f"grete {assignment.job}"
    if settings.job.is_pipeline:
        found = session_settings(name, settings, kafka_system)
    else:
        found = context_settings(name, settings)
    given = settings.spark.options
    changed = {key: value for key, value in sorted(found.items()) if given.get(key) != value}
    return {key: (redact_value(key, value), reason(key)) for key, value in changed.items()}


def main() -> int:
    """Answer; also of what went wrong."""
    try:
        query = Path(sys.argv[2]) if len(sys.argv) > 2 else None
        answer = tried(parse_assignment(json.load(sys.stdin), working_folder()), grete_home(), query)
    except GreteError as error:
        answer = {"error": str(error), "exit_code": exit_code(error)}
    Path(sys.argv[1]).write_text(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
