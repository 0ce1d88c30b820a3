"""`grete metrics rules|board|scrape`."""

from __future__ import annotations

import argparse

from grete.cli.options import argument, warn
from grete.errors import GreteError
from grete.operations import open_job


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    rules = actions.add_parser(
        "rules", help="alert rules for Prometheus, each with its section of the runbook"
    )
    rules.add_argument(
        "--scrape-job",
        default="grete",
        type=argument(str),
        metavar="NAME",
        help="the job_name under which Prometheus scrapes coordinators, or the beginning of several (default: grete)",
    )
    rules.set_defaults(run=_rules)
    board = actions.add_parser("board", help="a board for Grafana, to be imported")
    board.set_defaults(run=_board)
    scrape = actions.add_parser(
        "scrape", help="scrape_configs for Prometheus: the jobs of this home, a token each"
    )
    scrape.set_defaults(run=_scrape)


def _rules(options: argparse.Namespace) -> int:
    from grete.monitoring.alerts import rules

    print(rules(options.scrape_job), end="")
    return 0


def _board(options: argparse.Namespace) -> int:
    from grete.monitoring.board import board

    print(board())
    return 0


def _scrape(options: argparse.Namespace) -> int:
    from grete.environment import grete_home
    from grete.metadata.job_index import jobs
    from grete.monitoring.scraping import scrape_configs, target_of

    found = []
    for job in jobs(grete_home()):
        try:
            with open_job(job) as handle:
                target = target_of(handle)
        except GreteError as error:  # another job's brokers, or one of which no submit has succeeded
            warn(f"{job.shown} is left out: {error}")
            continue
        if target is None:
            warn(f"{job.shown} does not run, and job.http.port does not say where it will answer: left out")
            continue
        if not target.is_fixed:
            warn(f"{job.shown}: job.http.port is not set, so its address is another one after the next start")
        found.append(target)
    print(scrape_configs(found), end="")
    return 0
