"""Options that several commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from grete.errors import ConfigError


def parse_set(items: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` items as a mapping.

    Raises:
        ConfigError: an item without `=`.
    """
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {item!r}: write KEY=VALUE")
        found[key] = value
    return found


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """`--config` or `--job`, and `-o`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--config", "--config-path", dest="config", help="the job's configuration file")
    which.add_argument("--job", help="the job: NAME or NAME:ID")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


@contextmanager
def opened_job(options: argparse.Namespace, *, must_exist: bool = True) -> Iterator[Any]:
    """The job that the options name; without any, the only one there is.

    Raises:
        ConfigError: none named and there is not exactly one.
    """
    from grete.assembly import grete_home, jobs, open_job
    from grete.assembly.home import parse_job
    from grete.config.load import config_path, load_file
    from grete.model.ids import JobId

    config: dict[str, str] = {}
    if options.config:
        config = load_file(config_path(options.config))
        if "job.name" not in config:
            raise ConfigError("Missing required config: job.name")
        job = JobId(config["job.name"], config.get("job.id", "1"))
    elif options.job:
        job = parse_job(options.job)
    else:
        known = jobs(grete_home())
        if len(known) != 1:
            names = ", ".join(map(str, known)) or "none"
            raise ConfigError(f"name the job with --job or --config; jobs in {grete_home()}: {names}")
        job = known[0]
    with open_job(job, config, must_exist=must_exist) as handle:
        yield handle


def print_json(document: Any) -> None:
    """One JSON document."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns, aligned; numbers to the right."""
    cells = [list(map(str, headings)), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings))]
    numeric = [
        all(isinstance(row[i], int | float) for row in rows) and bool(rows) for i in range(len(headings))
    ]
    for row in cells:
        line = "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        print(line.rstrip())


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
