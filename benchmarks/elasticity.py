"""One partition whose records take 30 us of a core each, on two cores: by one task, and by two that share it.

`python -m benchmarks.elasticity [ROUNDS]`, embedded, in turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from benchmarks.backlog import backlog_job, passed, wait_until_passed

RECORDS, KEYS, WORK, TURN_S = 2_000_000, 10_000, 2_000, 15.0


def records_per_s(factor: int) -> float:
    """Of one job from its first commits on."""
    properties = f"spark.master=local[2]\njob.elasticity.factor={factor}\n"
    with backlog_job(RECORDS, KEYS, 1, properties, WORK):
        wait_until_passed(40_000)
        began_s, before = time.monotonic(), min(passed())
        time.sleep(TURN_S)
        return (min(passed()) - before) / (time.monotonic() - began_s)


def main(rounds: int) -> None:
    """Print a JSON object."""
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for factor, rates in found.items():
            rates.append(round(records_per_s(factor)))
    medians = {factor: statistics.median(rates) for factor, rates in found.items()}
    print(json.dumps({"records_per_s": found, "ratio": round(medians[2] / medians[1], 2)}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
