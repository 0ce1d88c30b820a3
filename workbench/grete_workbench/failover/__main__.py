"""`python -m grete_workbench.failover`: kills the leading coordinator of a job of its own, and times who succeeds it.

    python -m grete_workbench.failover --backend sqlite --processors --kills 20
    python -m grete_workbench.failover --backend kubernetes --kills 50
    python -m grete_workbench.failover --backend kafka --kills 5 --address 127.0.0.1:9092 --json FILE
    python -m grete_workbench.failover --backend sqlite --calm-s 3600 --burn

Coordinators and containers are real processes, without Spark. A coordinator that stands by takes the place of each
one that is killed. With `--processors` they are stream processors that share the job, and the one that leads is
killed with its tasks. With `--calm-s` none is killed, and none may take another's place. Exit codes: 0 all is well, 1
something was lost, done twice or written by a leader that was succeeded, or one that lived was succeeded, 2 wrong
usage.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from grete.errors import GreteError
from grete_workbench.failover.calm import Calm, cores, run_calm
from grete_workbench.failover.services import BACK_ENDS, SHORTEST_TTL_S, settings_of
from grete_workbench.failover.trial import Outcome, run_trial


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m grete_workbench.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--backend", required=True, choices=BACK_ENDS)
    parser.add_argument("--kills", type=int, default=50, help="how often (50)")
    parser.add_argument(
        "--processors", action="store_true", help="stream processors in place of coordinators and containers"
    )
    parser.add_argument(
        "--calm-s", type=float, metavar="S", help="kill none for so long, and count fail-overs"
    )
    parser.add_argument("--burn", action="store_true", help="with --calm-s: keep every core busy meanwhile")
    parser.add_argument(
        "--ttl", type=float, metavar="S", help="the lease (3, and 15 where that is the shortest)"
    )
    parser.add_argument("--rate", type=int, default=100, metavar="N", help="records/s meanwhile (100)")
    parser.add_argument("--address", help="of a server that runs, as the job's configuration names it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every kill there")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trial and print its figures."""
    options = _parser().parse_args(arguments)
    is_calm = options.calm_s is not None
    if options.kills < 1 or (options.burn and not is_calm) or (options.processors and is_calm):
        print(
            "failover: --kills is at least 1, --burn goes with --calm-s, and --processors does not",
            file=sys.stderr,
        )
        return 2
    ttl_s = options.ttl or SHORTEST_TTL_S.get(options.backend, 3.0)
    folder = Path(tempfile.mkdtemp(prefix="grete-failover-"))
    try:
        home = folder / "home"
        home.mkdir()
        with settings_of(options.backend, folder / "server", options.address) as settings:
            outcome = _run(options, settings, home, ttl_s)
    except (GreteError, AssertionError) as error:
        print(f"failover: {error}\nits folder stays: {folder}", file=sys.stderr)
        return 1
    _print(outcome)
    if outcome.is_well:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"its folder stays, with the logs of its processes: {folder}", file=sys.stderr)
    if options.json is not None:
        _write(outcome, options.json)
    return 0 if outcome.is_well else 1


def _run(
    options: argparse.Namespace, settings: Mapping[str, str], home: Path, ttl_s: float
) -> Outcome | Calm:
    if options.calm_s is None:
        return run_trial(
            options.backend,
            settings,
            home,
            kills=options.kills,
            ttl_s=ttl_s,
            rate=options.rate,
            seed=options.seed,
            processors=options.processors,
        )
    return run_calm(
        options.backend,
        settings,
        home,
        lasts_s=options.calm_s,
        ttl_s=ttl_s,
        rate=options.rate,
        burning=cores() if options.burn else 0,
    )


def _print(outcome: Outcome | Calm) -> None:
    damage = outcome.damage
    of_records = f"records lost {damage.lost}, doubled {damage.doubled} of {damage.records}"
    print(*outcome.lines(), f"  stale effects {damage.stale}, {of_records}", sep="\n")


def _write(outcome: Outcome | Calm, path: Path) -> None:
    about = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }
    path.write_text(json.dumps({**about, **outcome.document()}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
