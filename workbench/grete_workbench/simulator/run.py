"""One seed from its begin to its end, and many of them."""

from __future__ import annotations

import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grete_workbench.simulator.faults import frequent
from grete_workbench.simulator.ledger import Violation
from grete_workbench.simulator.world import World

_FAULTS_S = (12.0, 48.0)
_LOOK_S = 5.0
_PATIENCE_S = 240.0
_MEMORY = Path("/dev/shm")  # noqa: S108 - each run makes a directory of its own in it
"""Where there is one, files live in memory: nothing here crashes the machine, so nothing has to survive that."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one seed. `violation` is None when every promise was kept."""

    seed: int
    steps: int
    virtual_s: float
    outputs: int
    digest: str
    violation: Violation | None = None
    trace: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """Outcome of many seeds."""

    seeds: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    outputs: int = 0
    elapsed_s: float = 0.0
    violations: list[Outcome] = field(default_factory=list)
    last: Outcome | None = None

    def add(self, outcome: Outcome) -> None:
        """Count one seed."""
        self.last = outcome
        self.seeds += 1
        self.steps += outcome.steps
        self.virtual_s += outcome.virtual_s
        self.outputs += outcome.outputs
        if outcome.violation is not None:
            self.violations.append(outcome)


def simulate(seed: int, emphasis: Sequence[str] = (), *, embedded: bool = False) -> Outcome:
    """Run one seed. The same seed gives the same outcome, on every machine and under every hash seed.

    `emphasis` names kinds of faults that are there whatever the seed says: the same ones give the same outcome.
    With `embedded` the job is one of stream processors.
    """
    directory = Path(tempfile.mkdtemp(prefix="grete-simulator-", dir=_MEMORY if _MEMORY.is_dir() else None))
    world = World(seed, directory, emphasis, embedded=embedded)
    violation = None
    try:
        _live(world)
    except Violation as found:
        violation = found
    except Exception as error:  # noqa: BLE001 - any unexpected error of the product is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        violation = Violation(
            "no unexpected error", f"{error!r} at {Path(where.filename).name}:{where.lineno}"
        )
    finally:
        world.close()
        shutil.rmtree(directory, ignore_errors=True)
    scheduler = world.scheduler
    return Outcome(
        seed,
        scheduler.steps,
        scheduler.now_s,
        world.ledger.outputs,
        world.digest.hexdigest()[:16],
        violation,
        tuple(world.trace),
    )


def simulate_many(
    seeds: Iterable[int],
    *,
    emphasis: Sequence[str] | None = (),
    embedded: bool = False,
    stop_at_violation: bool = False,
) -> Report:
    """Run many seeds, one after the other; with None as the emphasis each with that of `faults.frequent`."""
    report = Report()
    began_s = time.perf_counter()
    for seed in seeds:
        own = frequent(seed, embedded=embedded) if emphasis is None else emphasis
        report.add(simulate(seed, own, embedded=embedded))
        if report.violations and stop_at_violation:
            break
    report.elapsed_s = time.perf_counter() - began_s
    return report


def _live(world: World) -> None:
    """Faults for a while; then none, and the job has to get to its end."""
    world.begin()
    world.run_until(world.chance.uniform(*_FAULTS_S))
    world.calm()
    _wait(world, lambda: not world.ledger.missing(), "the job gets to the end of its input")
    _wait(world, world.follows, "a running job follows its configuration")
    _wait(world, lambda: world.stops() and not world.alive(), "the job and its containers stop when asked to")
    missing = world.ledger.missing()
    if missing:
        raise Violation("nothing is undone at the end", "; ".join(missing))


def _wait(world: World, is_so: Callable[[], bool], promise: str) -> None:
    until_s = world.scheduler.now_s + _PATIENCE_S
    while not is_so():
        if world.scheduler.now_s >= until_s:
            left = "; ".join([*world.ledger.missing(), *world.alive(), str(world.watch.state)])
            raise Violation(promise, f"not within {_PATIENCE_S:g} s: {left}")
        world.go_on()
        world.run_until(world.scheduler.now_s + _LOOK_S)
