"""How long stream processors take to divide the tasks anew when one joins, leaves or is killed; tasks that move.

    python -m benchmarks.rebalance [--tasks 10 100 1000] [--rounds 3] [--stores] [--backend sqlite]
        [--rate 1000] [--json FILE]

Processors are real processes, without Spark: a third one comes, or goes, and it is not the leader. Each task gets a
record every `feed_s`, and each output says which process made it and when; only committed ones count. By event:
`with_debounce_s` from the event (the new one is a member; SIGTERM; SIGKILL) to the first output of the last task at
its new owner, `after_s` the same less `job.debounce.time.ms`; after a kill both hold the lease. `gap_s` is the
longest time without an output of a task that moved, `stayed_gap_s` of one that did not; `moved` stands beside
`least`, the fewest that equal shares allow. `ratio` is `after_s` to the start of the same job from nothing,
one process with all tasks, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rebalance_task import Output
from grete.clock import SystemClock
from grete.errors import StreamNotFound
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack
from grete_workbench.failover.services import BACK_ENDS, SHORTEST_TTL_S, settings_of

DEBOUNCE_S = 1.0
_FEED_S = 0.1
_POLL_S = 0.02
_GIVE_UP_S = 180.0
_STEADY_S = 2.0
"""Between events, at least, so that no gap belongs to the one before."""
_STATELESS = {"task.class": "benchmarks.rebalance_task:Saying"}
STATEFUL = {
    "task.class": "benchmarks.rebalance_task:Counting",
    "stores.counts.factory": "grete.store.sqlite",
    "stores.counts.changelog": "local.counts-changelog",
    "stores.counts.key.serde": "string",
    "stores.counts.msg.serde": "json",
}
Owners = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Event:
    """A processor that came or went."""

    with_debounce_s: float
    gap_s: float
    stayed_gap_s: float
    moved: int
    moves: int
    """Above `moved` where a task had another owner in between."""
    least: int

    def document(self) -> dict[str, float]:
        """As JSON says it."""
        return {
            "with_debounce_s": round(self.with_debounce_s, 3),
            "after_s": round(self.with_debounce_s - DEBOUNCE_S, 3),
            "gap_s": round(self.gap_s, 3),
            "stayed_gap_s": round(self.stayed_gap_s, 3),
            "moved": self.moved,
            "moves": self.moves,
            "least": self.least,
        }


def least_moves(before: Owners, living: Sequence[int]) -> int:
    """The fewest tasks that change hands when these processes get equal shares."""
    held = sorted((sum(owner == one for owner in before.values()) for one in living), reverse=True)
    share, larger = divmod(len(before), len(living))
    return len(before) - sum(min(has, share + (place < larger)) for place, has in enumerate(held))


class Shared:
    """The job, its processors, and what their tasks have said."""

    def __init__(
        self, home: Path, settings: Mapping[str, str], tasks: int, ttl_s: float, *, rate: int
    ) -> None:
        """`settings` are those of the back end and of the task; each second has `rate` records at most."""
        self.home, self.tasks = home, tasks
        self.job = JobId(f"rebalance-{uuid.uuid4().hex[:8]}")
        self.feed_s = max(_FEED_S, tasks / rate)
        given = {
            "job.name": self.job.name,
            "task.inputs": "local.in",
            "task.outputs": "local.said",
            "job.coordinator.system": "local",
            "systems.local.samza.factory": "local",
            "systems.local.samza.msg.serde": "json",
            "systems.local.path": str(home / "local"),
            "job.coordinator.lease.ttl.ms": str(round(ttl_s * 1000)),
            "job.debounce.time.ms": str(round(DEBOUNCE_S * 1000)),
            **settings,
        }
        self._config = home / "rebalance.json"
        self._config.write_text(json.dumps(given))
        self._system = LocalSystem(home / "local", SystemClock())
        self._system.create_stream(StreamSpec("in", tasks))
        self._system.create_stream(StreamSpec("said", 1))
        self._next = 0
        self._joined = 0
        self.said: list[Output] = []
        self.last: dict[str, Output] = {}
        self._living: list[subprocess.Popen[bytes]] = []
        self._gone: list[subprocess.Popen[bytes]] = []

    @property
    def living(self) -> list[int]:
        """Process ids."""
        return [one.pid for one in self._living]

    def join(self) -> None:
        """A processor of a process of its own."""
        self._joined += 1
        id_ = f"p{self._joined}"
        command = [sys.executable, "-m", "grete_workbench.processor_process", str(self._config), id_]
        environment = {**os.environ, "GRETE_HOME": str(self.home)}
        with self.log(id_).open("wb") as log, self.states(id_).open("wb") as states:
            process = subprocess.Popen(command, env=environment, stdout=states, stderr=log)
        self._living.append(process)

    def log(self, id: str) -> Path:
        return self.home / f"{id}.log"

    def states(self, id: str) -> Path:
        return self.home / f"{id}.out"

    def until_a_member(self) -> float:
        """When the processor that joined last was a member, wall clock."""
        states = self.states(f"p{self._joined}")
        deadline_s = time.monotonic() + _GIVE_UP_S
        while "STARTED" not in states.read_text():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{states} never says STARTED")
            time.sleep(_POLL_S)
        return time.time()

    def take_last(self) -> subprocess.Popen[bytes]:
        """The process that joined last, which is counted no more."""
        self._gone.append(self._living.pop())
        return self._gone[-1]

    @contextmanager
    def fed(self) -> Iterator[None]:
        """A record for each task every `feed_s` meanwhile."""
        ended = threading.Event()
        feeding = threading.Thread(target=self._feed, args=(ended,), name="feed")
        feeding.start()
        try:
            yield
        finally:
            ended.set()
            feeding.join()

    def _feed(self, ended: threading.Event) -> None:
        data = pack([b""], [b"{}"], [0])
        segments = [SegmentWrite("in", partition, 1, data) for partition in range(self.tasks)]
        with closing(LocalSystem(self.home / "local", SystemClock())) as system:
            due_s = time.monotonic()
            while not ended.wait(max(0.0, due_s - time.monotonic())):
                system.commit(CommitGroup([], segments, "", []))
                due_s = max(due_s + self.feed_s, time.monotonic())

    def listen(self) -> None:
        """Take in what was committed since."""
        with suppress(StreamNotFound):
            for _, batch in self._system.read("said", 0, self._next):
                for value in batch.column(1).to_pylist():
                    one = Output(*json.loads(value))
                    self.said.append(one)
                    self.last[one.task] = one
                    self._next += 1

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Listen until it holds.

        Raises:
            TimeoutError: it did not.
        """
        deadline_s = time.monotonic() + _GIVE_UP_S
        while True:
            self.listen()
            if holds():
                return
            if time.monotonic() > deadline_s:
                logs = "\n".join(self.log(f"p{n + 1}").read_text()[-2_000:] for n in range(self._joined))
                raise TimeoutError(f"{what}: it is {Counter(self.owners().values())}\n{logs}")
            time.sleep(_POLL_S)

    def owners(self) -> dict[str, int]:
        """The process of each task's last output."""
        return {task: one.pid for task, one in self.last.items()}

    def is_divided(self) -> bool:
        """Whether the last output of every task is of a process that lives, in equal shares."""
        shares = Counter(self.owners().values())
        if len(self.last) < self.tasks or set(shares) != set(self.living):
            return False
        return max(shares.values()) - min(shares.values()) <= 1

    def close(self) -> None:
        """Nothing of it runs afterwards."""
        for process in self._living:
            process.terminate()
        for process in [*self._living, *self._gone]:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._system.close()


def event(job: Shared, happens: Callable[[], float]) -> Event:
    """Let it happen, which says when that was, and wait until the tasks are divided and go on."""
    steady_s = time.time() + _STEADY_S + 2 * job.feed_s
    job.until(lambda: time.time() > steady_s, "a steady job")
    before, number = job.owners(), len(job.said)
    begins = dict(job.last)
    at_s = happens()
    job.until(job.is_divided, "the tasks are divided")
    rest_s = time.time() + 3 * job.feed_s
    job.until(lambda: min(one.at_s for one in job.last.values()) > rest_s, "all tasks go on")
    found = _of(job.said[number:], begins, before, job, at_s)
    print(f"    {found.document()}", file=sys.stderr, flush=True)
    return found


def _of(
    outputs: Sequence[Output],
    begins: Mapping[str, Output],
    before: Owners,
    job: Shared,
    at_s: float,
) -> Event:
    after = job.owners()
    moved = {task for task, owner in after.items() if before[task] != owner}
    first: dict[str, float] = {}
    gaps: dict[str, float] = {}
    moves, known = 0, dict(begins)
    for one in outputs:
        last = known[one.task]
        gaps[one.task] = max(gaps.get(one.task, 0.0), one.at_s - last.at_s)
        moves += last.pid != one.pid
        if one.pid == after[one.task]:
            first.setdefault(one.task, one.at_s)
        known[one.task] = one
    done_s = max((first[task] for task in moved), default=at_s)
    return Event(
        done_s - at_s,
        max((gaps[task] for task in moved), default=0.0),
        max((gap for task, gap in gaps.items() if task not in moved), default=0.0),
        len(moved),
        moves,
        least_moves(before, job.living),
    )


def joins(job: Shared) -> float:
    """A third processor; when it was a member."""
    job.join()
    return job.until_a_member()


def leaves(job: Shared) -> float:
    """The one that joined last stops in order; when it was asked to."""
    at_s = time.time()
    job.take_last().terminate()
    return at_s


def is_killed(job: Shared) -> float:
    """The one that joined last; when."""
    at_s = time.time()
    job.take_last().kill()
    return at_s


def start(job: Shared) -> float:
    """Seconds from the start of the first process until each task has an output."""
    began_s = time.time()
    job.join()
    job.until(job.is_divided, "the job starts")
    first: dict[str, float] = {}
    for one in job.said:
        first.setdefault(one.task, one.at_s)
    return max(first.values()) - began_s


def measured(
    settings: Mapping[str, str], home: Path, tasks: int, rounds: int, ttl_s: float, *, rate: int
) -> dict[str, Any]:
    """The figures of a job of so many tasks."""
    home.mkdir(parents=True)
    events: dict[str, list[Event]] = {"joins": [], "leaves": [], "is killed": []}
    with closing(Shared(home, settings, tasks, ttl_s, rate=rate)) as job, job.fed():
        start_s = start(job)
        event(job, lambda: joins(job))
        for _ in range(rounds):
            for ends, how in (("leaves", leaves), ("is killed", is_killed)):
                events["joins"].append(event(job, lambda: joins(job)))
                events[ends].append(event(job, lambda how=how: how(job)))  # type: ignore[misc]
    found: dict[str, Any] = {"tasks": tasks, "feed_s": job.feed_s, "start_s": round(start_s, 3)}
    for name, each in events.items():
        documents = [one.document() for one in each]
        middle = {key: round(statistics.median(one[key] for one in documents), 3) for key in documents[0]}
        found[name] = {**middle, "ratio": round(middle["after_s"] / start_s, 3), "events": documents}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rebalance")
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument(
        "--rounds", type=int, default=3, help="two joins, one clean end and one kill each (3)"
    )
    parser.add_argument("--stores", action="store_true", help="each task counts in a store with a changelog")
    parser.add_argument("--rate", type=int, default=1_000, help="records a second at most (1,000)")
    parser.add_argument("--backend", choices=BACK_ENDS, default="sqlite")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    ttl_s = SHORTEST_TTL_S.get(options.backend, 3.0)
    results: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "back_end": options.backend,
        "stores": options.stores,
        "lease_s": ttl_s,
        "debounce_s": DEBOUNCE_S,
        "load_before": round(os.getloadavg()[0], 1),
        "jobs": [],
    }
    with (
        tempfile.TemporaryDirectory(prefix="grete-rebalance-") as name,
        settings_of(options.backend, Path(name) / "server") as settings,
    ):
        for tasks in options.tasks:
            home = Path(name) / f"home-{tasks}"
            given = {**settings, **(STATEFUL if options.stores else _STATELESS)}
            found = measured(given, home, tasks, options.rounds, ttl_s, rate=options.rate)
            results["jobs"].append(found)
            print(f"{tasks} tasks: up from nothing in {found['start_s']:.2f} s", flush=True)
            for each in ("joins", "leaves", "is killed"):
                one = found[each]
                print(
                    f"  one {each:<10} {one['with_debounce_s']:.2f} s, {one['after_s']:.2f} s less the debounce "
                    f"({one['ratio']:.2f} of the start); longest gap {one['gap_s']:.2f} s, "
                    f"{one['stayed_gap_s']:.2f} s where tasks stay; {one['moved']:g} moved, {one['least']:g} must",
                    flush=True,
                )
            results["load_after"] = round(os.getloadavg()[0], 1)
            if options.json is not None:  # after each, so that a run that is broken off leaves what it has
                options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
