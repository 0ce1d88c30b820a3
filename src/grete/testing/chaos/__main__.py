"""`python -m grete.testing.chaos`: kills parts of a running job, or of one of its own that it then checks.

    python -m grete.testing.chaos --own-job --rounds 10 --seed 7
    python -m grete.testing.chaos --job words --kill-container --kill-coordinator --restart 'grete run --job words'

Exit codes: 0 all is well, 1 something was lost or done twice or a setting is missing, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from grete.clock import SystemClock
from grete.errors import GreteError
from grete.model.ids import JobId
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.operations.job_handle import JobHandle
from grete.testing.chaos.components import (
    Component,
    below_containers,
    broker,
    containers,
    coordinators,
)
from grete.testing.chaos.monkey import Monkey
from grete.testing.chaos.own_job import JOB, OwnJob

_log = logging.getLogger("grete.chaos")
KINDS = ("container", "coordinator", "jvm", "worker", "broker")
_QUIET_S = 120.0
"""After the last kill nothing may stand still for so long: a container that failed often before it committed waits
for a minute, and starts for some of the next.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grete.testing.chaos", description=__doc__)
    parser.add_argument("--job", help="the running job, NAME or NAME:ID, in GRETE_HOME")
    parser.add_argument(
        "--own-job", action="store_true", help="run a job of its own, kill all of it, and check it"
    )
    for kind in KINDS:
        parser.add_argument(f"--kill-{kind}", action="store_true")
    parser.add_argument(
        "--kill-time", type=float, default=90.0, metavar="S", help="seconds between kills (90)"
    )
    parser.add_argument(
        "--pause-time",
        type=float,
        default=0.0,
        metavar="S",
        help="pause every other container instead, so long",
    )
    parser.add_argument("--rounds", type=int, default=0, help="kills; 0 is for ever")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-spark", action="store_true", help="the own job's containers have no Spark")
    parser.add_argument(
        "--scale", action="store_true", help="change the own job's container count between kills"
    )
    parser.add_argument(
        "--rate", type=int, default=0, metavar="N", help="records/s for the own job, also while it is killed"
    )
    parser.add_argument("--restart", help="command that starts a coordinator again; it is not waited for")
    parser.add_argument("--broker-pid-file", type=Path)
    parser.add_argument("--broker-start", help="command that starts the broker in the background")
    parser.add_argument("--log-file", type=Path, default=Path(tempfile.gettempdir()) / "grete-kill-log.log")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill, and say how it went."""
    parser = _parser()
    options = parser.parse_args(arguments)
    chosen = [kind for kind in KINDS if getattr(options, f"kill_{kind}")]
    if not options.own_job and not chosen:
        parser.print_help()
        return 0
    missing = _missing(options, chosen)
    if missing:
        print(f"chaos: {missing}", file=sys.stderr)
        return 1
    handlers: list[logging.Handler] = [logging.FileHandler(options.log_file), logging.StreamHandler()]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", handlers=handlers)
    try:
        return _own_job(options) if options.own_job else _job(options, chosen)
    except GreteError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return 1


def _missing(options: argparse.Namespace, chosen: Sequence[str]) -> str:
    if options.own_job:
        return "" if options.rounds > 0 else "--own-job needs --rounds, to come to an end and be checked"
    if not options.job and chosen != ["broker"]:
        return "name the job with --job, or use --own-job"
    if "coordinator" in chosen and not options.restart:
        return "--kill-coordinator needs --restart COMMAND: nothing else restarts a coordinator"
    if "broker" in chosen and not (options.broker_pid_file and options.broker_start):
        return "--kill-broker needs --broker-pid-file and --broker-start"
    return ""


def _components(handle: JobHandle) -> dict[str, Component]:
    return {
        "container": Component("container", lambda: containers(handle), may_pause=True),
        "jvm": Component("jvm", lambda: below_containers(handle, "java")),
        "worker": Component("worker", lambda: below_containers(handle, "pyspark.worker")),
    }


def _job(options: argparse.Namespace, chosen: Sequence[str]) -> int:
    with ExitStack() as stack:
        found: dict[str, Component] = {}
        if options.job:
            handle = stack.enter_context(open_job(JobId.parse(options.job)))
            found = _components(handle)
            found["coordinator"] = Component(
                "coordinator", lambda: coordinators(handle), lambda: _start(options.restart)
            )
        if "broker" in chosen:
            found["broker"] = broker(options.broker_pid_file, shlex.split(options.broker_start))
        monkey = Monkey(
            [found[kind] for kind in chosen],
            seed=options.seed,
            clock=SystemClock(),
            pause_s=options.pause_time,
        )
        stack.callback(monkey.wait)
        for _ in _rounds(options.rounds):
            monkey.strike()
            time.sleep(options.kill_time)
    return 0


def _scale(handle: JobHandle, chance: random.Random) -> None:
    count = chance.randint(1, 3)
    _log.info("%d containers from now on", count)
    set_config(handle, {"job.container.count": str(count)}, reason="chaos")


def _start(command: str) -> None:
    # not waited for, and not ended with us: it is the operator's
    subprocess.Popen(shlex.split(command), start_new_session=True)  # noqa: S603


def _rounds(count: int) -> Iterator[int]:
    number = 0
    while count == 0 or number < count:
        yield number
        number += 1


def _own_job(options: argparse.Namespace) -> int:
    name = tempfile.mkdtemp(prefix="grete-chaos-")
    with ExitStack() as stack:
        own = OwnJob(Path(name), spark=not options.without_spark)
        stack.callback(own.close)
        own.send(2_000)
        own.start()
        os.environ["GRETE_HOME"] = name
        if not own.wait_until_counted(1, _QUIET_S):
            print("chaos: the job did not begin to process", file=sys.stderr)
            return 1
        handle = stack.enter_context(open_job(JobId(JOB)))
        components = _components(handle)
        components["coordinator"] = Component("coordinator", lambda: coordinators(handle), own.start_again)
        monkey = Monkey(
            list(components.values()), seed=options.seed, clock=SystemClock(), pause_s=options.pause_time
        )
        stack.callback(monkey.wait)
        chance = random.Random(options.seed)  # noqa: S311 - to be repeated, not to be secret
        with own.fed(options.rate):
            for _ in _rounds(options.rounds):
                time.sleep(options.kill_time)
                if options.scale:
                    _scale(handle, chance)
                monkey.strike()
                if not options.rate:
                    own.send(500)
        monkey.wait()
        done = own.wait_until_counted(own.sent, _QUIET_S)
        code = own.stop()
        problems = list(own.problems())
    kinds = ", ".join(f"{kill.component} {kill.pid}" for kill in monkey.kills)
    _log.info("seed %d, %d records, %d kills: %s", options.seed, own.sent, len(monkey.kills), kinds)
    if not done:
        problems.insert(0, f"nothing was processed for {_QUIET_S:g} s, and not everything is")
    if code != 0:
        problems.insert(0, f"the job ended with code {code}")
    for problem in problems:
        _log.error("%s", problem)
    if problems:
        _log.error("the job's folder with its logs stays: %s", name)
        return 1
    shutil.rmtree(name, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
