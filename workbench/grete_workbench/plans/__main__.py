"""`python -m grete_workbench.plans`: random jobs, starts, growth and moves through the real planner and ours."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from grete_workbench.plans.accepted import ACCEPTED
from grete_workbench.plans.campaign import Report, run
from grete_workbench.plans.samza import SamzaPlanner
from grete_workbench.plans.stories import story
from grete_workbench.real_samza import SamzaFailed


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: no difference but those that are meant. 1: there is one. 2: nothing could be run."""
    parser = argparse.ArgumentParser(prog="python -m grete_workbench.plans", description=__doc__)
    parser.add_argument("--cases", type=int, default=500, metavar="N", help="how many stories")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="S", help="the same seed makes the same stories"
    )
    parser.add_argument("--case", type=int, metavar="N", help="only this story, and print it")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    numbers = range(options.cases) if options.case is None else [options.case]
    began = time.monotonic()
    try:
        with SamzaPlanner() as samza:
            report = run((story(options.seed, number) for number in numbers), samza.plan)
    except SamzaFailed as error:
        print(error, file=sys.stderr)
        return 2
    if options.case is not None:
        print(json.dumps(asdict(story(options.seed, options.case)), indent=1, ensure_ascii=False))
    _print(report, options.seed, time.monotonic() - began)
    return 1 if report.unexplained else 0


def _print(report: Report, seed: int, elapsed_s: float) -> None:
    for case in report.found:
        print(f"case {case.story.number}, {case.difference}")
        print(f"    again: python -m grete_workbench.plans --seed {seed} --case {case.story.number}")
    for accepted in ACCEPTED:
        for kind, counts in (("bytes only", report.in_bytes), ("plan", report.in_plans)):
            if counts[accepted.name]:
                print(f"{counts[accepted.name]:6} {accepted.name} ({kind}): {accepted.reason}")
    print(
        f"{report.cases} cases ({report.starts} starts, {report.refused} refused by Samza) in {elapsed_s:.1f} s: "
        f"{report.agreed} agreed, {report.in_bytes.total()} differ in bytes only, {report.in_plans.total()} in what "
        f"is meant to, {report.unexplained} unexplained"
    )


if __name__ == "__main__":
    sys.exit(main())
