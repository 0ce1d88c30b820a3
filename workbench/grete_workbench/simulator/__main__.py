"""`python -m grete_workbench.simulator`: run seeds, one of them again, or a planted bug until it is found."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from grete_workbench.simulator.plants import NoPlants, find_plant, load_plants
from grete_workbench.simulator.run import Outcome, Report, simulate_many


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: every promise was kept (with --plant: the bug was found). 1: not. 2: nothing could be run."""
    parser = argparse.ArgumentParser(prog="python -m grete_workbench.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many seeds to run")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="the first one; the same seed runs the same"
    )
    parser.add_argument("--embedded", action="store_true", help="jobs of stream processors")
    parser.add_argument(
        "--frequent", action="store_true", help="a few faults more often, others in each seed"
    )
    parser.add_argument("--trace", action="store_true", help="print what happened in the last seed")
    parser.add_argument(
        "--plant", metavar="NAME", help="plant this bug; exits 1 when it is found, as for any other"
    )
    parser.add_argument("--list-plants", action="store_true", help="the bugs that can be planted")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    try:
        if options.list_plants:
            for name, known in sorted(load_plants().items()):
                print(f"{name:32} {known.what}")
            return 0
        plant = find_plant(options.plant) if options.plant else None
    except NoPlants as error:
        print(error, file=sys.stderr)
        return 2
    emphasis = None if options.frequent else ()
    seeds = range(options.seed, options.seed + options.seeds)
    with plant.planted() if plant is not None else nullcontext():
        report = simulate_many(
            seeds,
            emphasis=emphasis if plant is None else plant.emphasis,
            embedded=options.embedded if plant is None else plant.embedded,
        )
    again = (
        (" --frequent" if options.frequent else "") if options.plant is None else f" --plant {options.plant}"
    )
    _print(
        report, again + (" --embedded" if options.embedded else ""), trace=options.trace or options.seeds == 1
    )
    return 1 if report.violations else 0


def _print(report: Report, again: str, *, trace: bool) -> None:
    shown = report.violations or ([report.last] if report.last is not None and trace else [])
    for outcome in shown[:1] if trace else []:
        print("\n".join(outcome.trace))
    for outcome in report.violations:
        print(_line(outcome, again))
    rate = report.seeds / report.elapsed_s if report.elapsed_s else 0.0
    steps = report.steps / report.elapsed_s if report.elapsed_s else 0.0
    print(
        f"seeds {report.seeds}, steps {report.steps}, violations {len(report.violations)}; "
        f"{report.elapsed_s:.1f} s, {rate:.1f} seeds/s, {steps:.0f} steps/s; "
        f"{report.virtual_s / 3600:.1f} simulated hours, {report.outputs} records"
    )


def _line(outcome: Outcome, again: str) -> str:
    return (
        f"seed {outcome.seed} after {outcome.steps} steps ({outcome.virtual_s:.1f} s): {outcome.violation}\n"
        f"  replay: python -m grete_workbench.simulator --seed {outcome.seed}{again}"
    )


if __name__ == "__main__":
    sys.exit(main())
