"""`grete metrics rules|board`."""

from __future__ import annotations

import argparse

from grete.cli.options import argument


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
        help="the job_name under which Prometheus scrapes coordinators (default: grete)",
    )
    rules.set_defaults(run=_rules)
    board = actions.add_parser("board", help="a board for Grafana, to be imported")
    board.set_defaults(run=_board)


def _rules(options: argparse.Namespace) -> int:
    from grete.monitoring.alerts import rules

    print(rules(options.scrape_job), end="")
    return 0


def _board(options: argparse.Namespace) -> int:
    from grete.monitoring.board import board

    print(board())
    return 0
