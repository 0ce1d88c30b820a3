"""A job with everything but Spark: for tests of what surrounds it, in seconds and without Java.

    python -m grete.testing.sparkless --config FILE [--until-drained]
    python -m grete.testing.sparkless --job NAME [--until-drained]

Coordinator, launcher, processes, heartbeats, job model, fences, tasks, stores, commits and standby containers are the
real ones, and so is the loop of shares, which run one after another here, not in Spark's tasks.
DataFrame pipelines cannot run so.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from grete.assembly import RunOptions, run_job
from grete.assembly.submission import WITHOUT_SPARK
from grete.errors import GreteError
from grete.extras import require
from grete.model.ids import JobId
from grete.text_logs import log_to_stderr


def main(arguments: Sequence[str]) -> int:
    """Coordinate the job that is named."""
    log_to_stderr(os.environ.get("GRETE_LOG_LEVEL", "INFO"))
    parser = argparse.ArgumentParser(prog="python -m grete.testing.sparkless")
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--job", type=JobId.parse)
    parser.add_argument("--until-drained", action="store_true")
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--dev", action="store_true")
    options = parser.parse_args(arguments)
    asked = RunOptions(
        config_paths=options.config,
        job=options.job,
        until_drained=options.until_drained,
        stands_by=options.standby,
        container_command=WITHOUT_SPARK,
        dev=options.dev,
    )
    try:
        require("arrow")
        return run_job(asked)
    except GreteError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
