"""How long tasks wait when a job with Spark gets another container, and when it loses it again.

    python -m benchmarks.more_containers [--tasks 100] [--rounds 3] [--stores] [--rate 1000] [--json FILE]

`job.container.count` goes from one to two and back, as `grete config set` or autosizing would change it. Containers
are processes with Spark, local master; each task gets a record every `feed_s`. Figures as of `benchmarks.rebalance`,
from when the configuration was written: `gap_s` is the longest time without an output of a task that moved,
`stayed_gap_s` of one that did not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.rebalance import DEBOUNCE_S, STATEFUL, Event, Shared, event
from grete.operations import open_job
from grete.operations.configuration import set_config

_TASK = {"task.class": "benchmarks.rebalance_task:SayingInSpark"}
_STORES = {**STATEFUL, "task.class": "benchmarks.rebalance_task:CountingInSpark"}
_LEASE_S = 10.0


class WithContainers(Shared):
    """The job under one coordinator."""

    count = 1

    @property
    def living(self) -> list[int]:
        """One process of each container that has said something last."""
        return sorted(set(self.owners().values()))

    def join(self) -> None:
        """Start the job."""
        path = self._config.with_suffix(".properties")
        path.write_text(
            "\n".join(f"{key}={value}" for key, value in json.loads(self._config.read_text()).items())
        )
        command = [sys.executable, "-m", "grete.cli.main", "run", "--quiet", "--config", str(path)]
        environment = {**os.environ, "GRETE_HOME": str(self.home)}
        self._joined = 1
        with self.log("p1").open("wb") as log:
            self._living.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def change(self, count: int) -> float:
        """Want so many containers; when that was written."""
        with open_job(self.job) as handle:
            set_config(handle, {"job.container.count": str(count)}, reason="benchmark")
        self.count = count
        return time.time()

    def is_divided(self) -> bool:
        """Whether each container has spoken last for its share of the tasks."""
        shares = Counter(self.owners().values())
        if len(self.last) < self.tasks or len(shares) != self.count:
            return False
        return max(shares.values()) - min(shares.values()) <= 1


def measured(home: Path, tasks: int, rounds: int, *, rate: int, has_stores: bool) -> dict[str, Any]:
    """The figures of a job of so many tasks."""
    events: dict[str, list[Event]] = {"more": [], "fewer": []}
    task = _STORES if has_stores else _TASK
    given = {**task, "job.application.path": str(Path(__file__).parents[1]), "spark.master": "local[2]"}
    with closing(WithContainers(home, given, tasks, _LEASE_S, rate=rate)) as job, job.fed():
        job.join()
        job.until(job.is_divided, "the job starts")
        for _ in range(rounds):
            events["more"].append(event(job, lambda: job.change(2)))
            events["fewer"].append(event(job, lambda: job.change(1)))
    found: dict[str, Any] = {"tasks": tasks, "feed_s": job.feed_s}
    for name, each in events.items():
        documents = [one.document() for one in each]
        for document in documents:
            document["done_s"] = round(document.pop("after_s") + DEBOUNCE_S, 3)
            del document["with_debounce_s"]
        middle = {key: round(statistics.median(one[key] for one in documents), 3) for key in documents[0]}
        found[name] = {**middle, "events": documents}
    return found


def main() -> int:
    """Measure, and say it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.more_containers")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stores", action="store_true")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["GRETE_HOME"] = str(home)
        found = measured(home, options.tasks, options.rounds, rate=options.rate, has_stores=options.stores)
    found["stores"] = options.stores
    print(json.dumps(found, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
