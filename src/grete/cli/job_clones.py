"""`grete job clone`, `compare` and `promote`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from grete.cli.options import (
    add_common_options,
    add_job_options,
    argument,
    opened_job,
    say_that_spark_is_asked,
    warn,
)
from grete.cli.output import print_json, print_table
from grete.errors import ConfigError, JobError
from grete.model.ids import JobId

if TYPE_CHECKING:
    from grete.model.comparison import Compared
    from grete.model.startpoint import Startpoint

_CHECKPOINT = "checkpoint"
_DEFAULTS = ("oldest", "upcoming")


def declare(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the commands."""
    clone = actions.add_parser(
        "clone", help="write the configuration of a second version that runs beside the job"
    )
    add_job_options(clone)
    kind = argument(JobId.parse)
    clone.add_argument(
        "--as", dest="clone", required=True, type=kind, metavar="NAME[:ID]", help="the clone's name"
    )
    clone.add_argument(
        "--from",
        dest="start",
        default="oldest",
        metavar="WHERE",
        help="where it begins to read: oldest, upcoming, timestamp:TIME, or checkpoint: with the offsets and stores "
        "of the job's last commits",
    )
    clone.add_argument("--to-file", required=True, metavar="FILE", help="where its configuration is written")
    clone.set_defaults(run=_clone)
    compare = actions.add_parser(
        "compare",
        help="outputs of a job and its clone: streams by the last value of each key, tables by their rows",
    )
    _add_both(compare)
    compare.set_defaults(run=_compare)
    promote = actions.add_parser(
        "promote", help="let a clone go on where its original stands, in its streams"
    )
    _add_both(promote)
    promote.add_argument(
        "--execute", action="store_true", help="do it; without, run both to the same offsets and compare them"
    )
    promote.set_defaults(run=_promote)


def _add_both(parser: argparse.ArgumentParser) -> None:
    kind = argument(JobId.parse)
    parser.add_argument("--job", required=True, type=kind, metavar="NAME[:ID]", help="the clone")
    parser.add_argument("--over", required=True, type=kind, metavar="NAME[:ID]", help="its original")
    parser.add_argument(
        "--tables",
        action="store_true",
        help="compare folders and tables of a pipeline as well, where Spark is",
    )
    add_common_options(parser)


def _clone(options: argparse.Namespace) -> int:
    from grete.config.clone import clone_config
    from grete.config.properties import format_properties
    from grete.operations.clone_start import begin_at, begin_at_checkpoint
    from grete.private_files import write_private

    default = options.start if options.start in _DEFAULTS else ""
    with opened_job(options) as handle:
        original, made = handle.job, clone_config(handle.settings, options.clone, start=default)
    if options.start == _CHECKPOINT:
        begin_at_checkpoint(original, made, say_that_spark_is_asked)
    elif not default:
        begin_at(original, made, _time(options.start))
    name, path = options.clone.shown, options.to_file
    write_private(Path(path), f"# {name}, which runs beside {original.shown}\n{format_properties(made.raw)}")
    if options.output == "json":
        print_json({"job": name, "original": original.shown, "file": str(Path(path).absolute())})
        return 0
    places = [*map(str, made.task.own_outputs), *(one.place for one in made.outputs.values())]
    print(
        f"{path}: change there what the new version changes, then: grete run --config {path}\n"
        f"It writes {', '.join(places)}. To compare with {original.shown}: "
        f"grete job compare --job {name} --over {original.shown}"
    )
    return 0


def _time(text: str) -> Startpoint:
    from grete.checkpoint.rewind_target import parse_target

    if not text.startswith("timestamp:"):
        raise ConfigError(f"--from {text!r}: write {', '.join(_DEFAULTS)}, timestamp:TIME or {_CHECKPOINT}")
    return cast("Startpoint", parse_target(text, "--from"))


def _compare(options: argparse.Namespace) -> int:
    found = _compared(options)
    if options.output == "json":
        print_json(_document(options, found))
    else:
        _print(found)
    return 0 if all(one.is_equal for one in found) else 1


def _promote(options: argparse.Namespace) -> int:
    from grete.operations.clones import swap
    from grete.operations.meeting import bring_together

    met = bring_together([options.over, options.job], run_until_drained)
    found = _compared(options)
    if options.execute:
        swap(options.over, options.job)
    if options.output == "json":
        at = {str(ssp): offset for ssp, offset in sorted(met.at.items())}
        print_json({**_document(options, found), "offsets": at, "promoted": options.execute})
        return 0
    _print(found)
    clone, original = options.job.shown, options.over.shown
    if options.execute:
        print(
            f"{clone} writes the streams of {original} from here on: grete run --job {clone}\n{original} is not run "
            f"any more. When nobody wants it back: grete job delete --job {original}"
        )
    else:
        print(
            f"both stand at the same offsets; --execute lets {clone} go on from there instead of {original}"
        )
    return 0


def _compared(options: argparse.Namespace) -> list[Compared]:
    from grete.operations import open_job
    from grete.operations.comparison import compare_streams, compare_tables

    with open_job(options.over) as original, open_job(options.job) as clone:
        found = list(compare_streams(original, clone))
        own, other = original.settings.outputs, clone.settings.outputs
        both = ", ".join(one.place for name, one in own.items() if name in other)
        if both and options.tables:
            say_that_spark_is_asked(both)
            found += compare_tables(original, clone)
        elif both:
            warn(f"not compared: {both}. With --tables they are, by Spark")
        if alone := sorted(own.keys() ^ other.keys()):
            warn(f"not compared, since only one of both has it: {', '.join(alone)}")
    return found


def run_until_drained(job: JobId) -> None:
    """Run a job in a process of its own, with its output.

    Raises:
        JobError: it failed.
    """
    print(f"running {job.shown} to the offsets that are asked for", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "grete.cli.main", "run", "--job", job.shown, "--until-drained"]
    ended = subprocess.run(command, stdout=sys.stderr, check=False).returncode  # noqa: S603 - our own
    if ended != 0:
        raise JobError(
            f"job {job.shown} ended with exit code {ended} on its way there; mend that, and ask again"
        )


def _document(options: argparse.Namespace, found: list[Compared]) -> dict[str, object]:
    return {
        "job": options.job.shown,
        "original": options.over.shown,
        "equal": all(one.is_equal for one in found),
        "outputs": [
            {
                "output": one.output,
                "clone_output": one.other,
                "records": one.records,
                "clone_records": one.other_records,
                "same": one.same,
                "differ": one.differ,
                "missing": one.missing,
                "more": one.more,
                "sums": one.sums,
                "examples": one.examples,
                "columns": one.only_own,
                "clone_columns": one.only_other,
            }
            for one in found
        ],
    }


def _print(found: list[Compared]) -> None:
    if not found:
        print("nothing was compared")
        return
    rows = [
        (
            one.output,
            one.other,
            f"{one.records}, {one.other_records}",
            one.same,
            one.differ,
            one.missing,
            one.more,
            ", ".join(one.examples),
        )
        for one in found
    ]
    print_table(("output", "clone's", "records", "same", "differ", "missing", "more", "such as"), rows)
    for one in found:
        for name, (own, other) in one.sums.items():
            if own != other:
                print(f"{one.output}: the sum of {name} is {own}, the clone's {other}")
        for place, names in ((one.output, one.only_own), (one.other, one.only_other)):
            if names:
                print(f"only {place} has column {', '.join(names)}, which was not compared")
