"""A key of a store over HTTP while its job is at full load: how long an answer takes, and what the job loses by it.

    python -m benchmarks.store_questions [ROUNDS] [--kafka]

A counter, embedded or on a broker of its own, has a backlog that it never works off. In turns it is left alone and
asked 50 times a second.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

from benchmarks.backlog import JOB, backlog_job, passed, wait_until_passed
from grete.operations import open_job

PARTITIONS, KEYS, RECORDS = 4, 100_000, 18_000_000
TURN_S, PER_SECOND = 10.0, 50


def turn(url: str, token: str, per_second: int) -> tuple[float, list[float]]:
    """(records a second, milliseconds of each answer)."""
    began_s, before, took_ms = time.monotonic(), sum(passed()), list[float]()
    while time.monotonic() < began_s + TURN_S:
        if per_second:
            key = random.randrange(KEYS)  # noqa: S311 - any
            task = quote(f"Partition {key % PARTITIONS}")
            asked = urllib.request.Request(  # noqa: S310 - our own server
                f"{url.rstrip('/')}/api/v1/stores/counts?key=key-{key}&task={task}",
                headers={"Authorization": f"Bearer {token}"},
            )
            asked_s = time.monotonic()
            with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
                assert len(json.load(answer)["entries"]) == 1
            took_ms.append((time.monotonic() - asked_s) * 1000)
            time.sleep(max(0.0, 1 / per_second - (time.monotonic() - asked_s)))
        else:
            time.sleep(0.1)
    return (sum(passed()) - before) / (time.monotonic() - began_s), took_ms


def main(rounds: int, *, on_kafka: bool) -> None:
    """Print a JSON object."""
    with backlog_job(RECORDS, KEYS, PARTITIONS, "spark.master=local[1]\n", on_kafka=on_kafka):
        wait_until_passed(2 * KEYS)
        with open_job(JOB) as handle:
            state = handle.state()
        assert state is not None
        token = Path(state.token_file).read_text().strip()
        alone, asked, took_ms = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            alone.append(turn(state.url, token, 0)[0])
            rate, answers = turn(state.url, token, PER_SECOND)
            asked.append(rate)
            took_ms += answers
        left = RECORDS - sum(passed())
    percentiles = statistics.quantiles(took_ms, n=100)
    made = {
        "system": "kafka" if on_kafka else "embedded",
        "answers": len(took_ms),
        "p50_ms": round(percentiles[49], 1),
        "p99_ms": round(percentiles[98], 1),
        "records_per_s_alone": [round(one) for one in alone],
        "records_per_s_asked": [round(one) for one in asked],
        "ratio": round(statistics.median(asked) / statistics.median(alone), 3),
        "left": left,
    }
    print(json.dumps(made))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--kafka"]
    main(int(words[0]) if words else 3, on_kafka="--kafka" in sys.argv)
