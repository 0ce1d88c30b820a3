"""StreamTasks on executors of a standalone cluster against the same job on a local master, and 1, 2 and 4 executors.

    python -m benchmarks.executors [--records 500000] [--rounds 3] [--executors 1 2 4] [--discard]

The job of `benchmarks.kafka_peers` that counts each key, on one broker. Executors have one core each, and see neither
the home of the job nor its modules, which are brought to them. Measured is the rate between the first records and the
last; each output is read and compared in the end. `ratio` is the rate of two executors to that of `local[2]`, of the
same round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import kafka_peers
from benchmarks.contestants import CONTESTANTS, HERE, KEYS, Command, Race, configured, keep, surroundings
from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.spark_cluster import Hidden, SparkCluster

LOCAL = "local[2]"


def on_cluster(race: Race, *, master: str, executors: int) -> Command:
    """The command of grete's turn, with executors of a cluster."""
    settings = {"spark.master": master, "spark.cores.max": str(executors), "spark.executor.memory": "512m"}
    return configured(CONTESTANTS["grete"], settings, race)


@contextmanager
def servers(directory: Path, executors: int) -> Iterator[tuple[str, str]]:
    """A broker and a cluster of so many workers; their addresses."""
    broker = KafkaCluster(directory / "broker")
    hidden = Hidden((directory / "turns", HERE / "peers"))
    cluster = SparkCluster(directory / "cluster", nodes=1 + executors, hidden=hidden)
    try:
        broker.start()
        cluster.start()
        yield broker.bootstrap, cluster.bootstrap
    finally:
        cluster.stop()
        broker.stop()


def run(executors: Sequence[int], records: int, rounds: int) -> dict[str, object]:
    """Every contestant once a round, in turn."""
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder), max(executors)) as (brokers, master):
        turns: dict[str, Callable[[Race], Command]] = {LOCAL: CONTESTANTS["grete"]}
        turns |= {
            f"{count} executors": partial(on_cluster, master=master, executors=count) for count in executors
        }
        found: dict[str, list[dict[str, object]]] = {name: [] for name in turns}
        kafka_peers.fill(brokers, "in", records)
        for number in range(rounds):
            for name, command in turns.items():
                target = f"{''.join(filter(str.isalnum, name))}-{number}"
                race = Race(brokers, "in", target, "count", Path(folder) / "turns" / target)
                race.directory.mkdir(parents=True)
                found[name].append(kafka_peers.measure(command, race, records))
                print(target, found[name][-1], file=sys.stderr, flush=True)
    rates = {name: [int(str(turn["records_per_s"])) for turn in of] for name, of in found.items()}
    medians = {name: statistics.median(of) for name, of in rates.items()}
    two = rates.get("2 executors", [])
    ratios = [round(there / here, 2) for there, here in zip(two, rates[LOCAL], strict=False)]
    return {"median_records_per_s": medians, "ratio": ratios, "turns": found}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.executors")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    given = parser.parse_args()
    assert given.records % KEYS == 0
    figures = {
        **surroundings(),
        "records": given.records,
        **run(given.executors, given.records, given.rounds),
    }
    keep(figures, kind="executors", is_discarded=given.discard)


if __name__ == "__main__":
    main()
