"""`python -m grete.testing.failover`: kills the leading coordinator of a job of its own, and measures its succession.

    python -m grete.testing.failover --backend kubernetes --kills 50
    python -m grete.testing.failover --backend kafka --kills 5 --address 127.0.0.1:9092 --json FILE

Coordinators and containers are real processes, without Spark. A coordinator that stands by takes the place of each
one that is killed. Exit codes: 0 all is well, 1 something was lost, done twice or written by a leader that was
succeeded, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from grete.errors import GreteError
from grete.testing.failover.services import BACK_ENDS, SHORTEST_TTL_S, settings_of
from grete.testing.failover.trial import Outcome, run_trial


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m grete.testing.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--backend", required=True, choices=BACK_ENDS)
    parser.add_argument("--kills", type=int, default=50, help="how often (50)")
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
    if options.kills < 1:
        print("failover: --kills is at least 1", file=sys.stderr)
        return 2
    ttl_s = options.ttl or SHORTEST_TTL_S.get(options.backend, 3.0)
    folder = Path(tempfile.mkdtemp(prefix="grete-failover-"))
    try:
        home = folder / "home"
        home.mkdir()
        with settings_of(options.backend, folder / "server", options.address) as settings:
            outcome = run_trial(
                options.backend,
                settings,
                home,
                kills=options.kills,
                ttl_s=ttl_s,
                rate=options.rate,
                seed=options.seed,
            )
    except (GreteError, AssertionError) as error:
        print(f"failover: {error}\nits folder stays: {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    _print(outcome)
    if options.json is not None:
        _write(outcome, options.json)
    return 0 if outcome.is_well else 1


def _print(outcome: Outcome) -> None:
    said = outcome.document()
    print(f"{outcome.back_end}: {said['kills']} kills, a lease of {outcome.ttl_s:g} s")
    for name, what in (("elected_ttls", "another is elected"), ("leading_ttls", "another leads")):
        print(f"  {what:<20} p50 {said[name]['p50']:.2f} TTL, p99 {said[name]['p99']:.2f} TTL")
    of_records = f"records lost {outcome.lost}, doubled {outcome.doubled} of {outcome.records}"
    print(f"  stale effects {outcome.stale}, {of_records}")


def _write(outcome: Outcome, path: Path) -> None:
    about = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }
    path.write_text(json.dumps({**about, **outcome.document()}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
