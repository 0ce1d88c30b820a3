"""`make demo`: loads the flights, runs both jobs until they are drained, shows what they found and where it is.

`make demo-kafka` does it on a Kafka broker, `make demo-cluster MANAGER=standalone` with executors of a cluster
besides, which see nothing of this machine's home, and with both applications in environments of their own.
Everything shown comes from the output streams, checkpoints and coordinator streams; nothing is remembered here. So
running it again shows the same figures, and so does running it after a kill at any moment.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from clusters import MANAGERS  # noqa: E402 - the example's own modules stand beside this file
from figures import carriers, counted, figures  # noqa: E402
from jobs import DemoJob, run_all  # noqa: E402
from load import FLIGHTS  # noqa: E402
from places import JOBS, Place, embedded, on_cluster, on_kafka  # noqa: E402
from show import show_figures, show_jobs, show_places  # noqa: E402

from grete.cli.progress import ProgressLine  # noqa: E402
from grete.environment import grete_home  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Two jobs over the flights that left New York in 2013.")
    parser.add_argument("--figures", action="store_true", help="print what was found as JSON, run nothing")
    parser.add_argument(
        "--kafka", action="store_true", help="on a Kafka broker, in the folder `kafka` of the home"
    )
    parser.add_argument(
        "--cluster", choices=MANAGERS, help="on a Kafka broker, with executors of a cluster that it starts"
    )
    parser.add_argument("--flights", type=int, default=FLIGHTS, help="only the first so many of the year")
    options = parser.parse_args(arguments)
    if options.cluster:
        os.environ["GRETE_HOME"] = str(grete_home() / f"cluster-{options.cluster}")
    elif options.kafka:
        os.environ["GRETE_HOME"] = str(grete_home() / "kafka")
    home = grete_home()
    home.mkdir(parents=True, exist_ok=True)
    with alone(home), place_of(options, home) as place:
        if options.figures:
            print(json.dumps(figures(place.system), indent=2))
            return 0
        return demo(home, place, options.flights)


def place_of(options: argparse.Namespace, home: Path) -> AbstractContextManager[Place]:
    """Where the demo runs."""
    if options.cluster and not options.figures:
        return on_cluster(home, options.cluster)
    return (on_kafka if options.kafka or options.cluster else embedded)(home)


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Two demos at once would load the flights twice. The lock ends with the process, however it ends."""
    with (home / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another demo is running in {home}; wait for it or set GRETE_HOME") from None
        yield


def demo(home: Path, place: Place, flights: int) -> int:
    load_flights(home, place, flights)
    check_count(f"the stream {place.name}.flights", counted(place.system, "flights"), flights)
    jobs = [DemoJob(name, place, flights) for name in JOBS]
    before = sum(job.covered() for job in jobs)
    how = "deploy apply" if place.is_deployed else "run"
    print(f"\nRunning {' and '.join(JOBS)}, each with `grete {how} --until-drained`", flush=True)
    started_s = time.monotonic()
    code = run_all(jobs, flights, ProgressLine(sys.stdout))
    elapsed_s = time.monotonic() - started_s
    if code or any(job.covered() < flights for job in jobs):
        print("The jobs have not come to the end; make demo goes on from where they are.", file=sys.stderr)
        return code or 1
    processed = sum(job.covered() for job in jobs) - before
    show_figures(place)
    check_count("the output of inherited-delays", counted(place.system, "inherited-delays"), flights)
    check_count(
        "the carriers' table", sum(one["flights"] for one in carriers(place.system).values()), flights
    )
    show_jobs(JOBS, place)
    print()
    if processed:
        rate = f"{processed / elapsed_s:,.0f} records/s, Spark's start included"
        print(f"{processed:,} records processed by both jobs in {elapsed_s:.1f} s: {rate}.")
    else:
        print("Nothing is new: every flight had been processed before, and the figures are the same.")
    show_places(home, place)
    return 0


def check_count(what: str, found: int, flights: int) -> None:
    """Every flight is there once, or the demo ends."""
    if found != flights:
        raise SystemExit(f"{what} has {found:,} flights, and should have {flights:,}")


def load_flights(home: Path, place: Place, flights: int) -> None:
    where = home / ("local" if place.name == "local" else "broker")
    print(f"Loading {flights:,} flights of 2013 into the stream {place.name}.flights in {where}")
    progress = ProgressLine(sys.stdout)
    appended = place.load(flights, lambda present: progress.show(f"  {present:,} of {flights:,}"))
    progress.end(f"  {appended:,} flights appended" if appended else "  all of them are there already")


if __name__ == "__main__":
    os.environ.setdefault("GRETE_HOME", str(HERE.parent.parent / ".grete"))
    sys.exit(main())
