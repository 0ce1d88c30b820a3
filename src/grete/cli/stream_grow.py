"""`grete stream grow`."""

from __future__ import annotations

import argparse

from grete.cli.options import add_job_options, warn
from grete.cli.output import print_json
from grete.cli.stream_system import opened_system, options_settings, partition_count, stream_name
from grete.errors import StreamError


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("stream", type=stream_name, help="system.stream")
    parser.add_argument("--partitions", type=partition_count, required=True, help="how many it shall have")
    parser.add_argument("--force", action="store_true", help="even if a job that reads it could not go on")
    add_job_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Add partitions, unless a job of this home would lose its state's keys.

    Raises:
        StreamError: fewer than there are, or refused for the sake of a job.
    """
    from grete.environment import grete_home
    from grete.operations.growth import readers_after_growth

    name, home = options.stream, grete_home()
    with opened_system(options, name.system) as system:
        before = system.partition_count(name.stream)
        place = options_settings(options).system(name.system).place(home)
        readers = list(readers_after_growth(name, options.partitions, place=place, home=home))
        problems = [f"{r.job.shown}: {r.problem}" for r in readers if r.problem is not None]
        if problems and options.partitions > before and not options.force:
            raise StreamError("\n".join([*problems, "nothing was changed; --force does it all the same"]))
        system.add_partitions(name.stream, options.partitions)
    for reader in readers:
        if reader.is_running and options.partitions > before:
            warn(f"{reader.job.shown} runs; it reads the new partitions when its model is recalculated")
    if options.output == "json":
        print_json({"stream": str(name), "before": before, "partitions": options.partitions})
    else:
        print(f"{name}: {before} to {options.partitions} partitions")
    return 0
