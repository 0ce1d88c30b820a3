"""`make bench-kafka BENCH=kafka_peers`: the same work by grete and its peers on one topic of one local broker.

JSON in, a counter for each key, JSON out (`count`), and JSON in, JSON out (`pass`), on two cores that the broker
shares. Every contestant runs with its checkpoints on, reads the same topic of four partitions and writes a topic
of its own; they take turns, so that what else the machine does hits all of them. Measured is the rate between the
output of the first records and the last, so that starting a JVM or a Spark session is not measured. In the
end every output is read and compared: a contestant that lost or doubled a record is shown as wrong.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.contestants import (
    CONTESTANTS,
    KEYS,
    PARTITIONS,
    VARIANTS,
    Command,
    Race,
    keep,
    make_topic,
    reader,
    record,
    running,
    send,
    surroundings,
)
from benchmarks.processes import cpu_s
from grete.testing.kafka_broker import KafkaCluster

WARM_UP = 100_000
_PATIENCE_S = 300.0
_NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._TIMED_OUT,
)


def fill(bootstrap: str, topic: str, records: int) -> None:
    """The input of all turns."""
    make_topic(bootstrap, topic)
    send(bootstrap, topic, ((*record(number), -1) for number in range(records)))


class Watched:
    """How many records are in a topic, markers of transactions included, of which there are few."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def count(self) -> int:
        """Zero while a topic that was just made has no leaders yet."""
        asked = dict.fromkeys(self._partitions, OffsetSpec.latest())
        found = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        try:
            return sum(future.result(30).offset for future in found.values())
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET:
                raise
            return 0


def measure(contestant: Callable[[Race], Command], race: Race, records: int) -> dict[str, object]:
    """One turn: records/s and processor time of a record after the warm-up, and whether every record came out once.

    The processor time is of all of the contestant's processes, without the broker.
    """
    make_topic(race.bootstrap, race.target)
    watched, log = Watched(race.bootstrap, race.target), race.directory / "log"
    began = time.monotonic()
    with running(contestant(race), log) as process:
        first_s, first = _until(watched, WARM_UP, process, log)
        first_cpu_s = cpu_s(process.pid)
        last_s, last = _until(watched, records, process, log)
        used_s = cpu_s(process.pid) - first_cpu_s
        problem = _wrong(race, records)
    result: dict[str, object] = {
        "records_per_s": round((last - first) / (last_s - first_s)),
        "cpu_us": round(used_s / (last - first) * 1e6, 2),
        "measured_records": last - first,
        "seconds_to_warm": round(first_s - began, 1),
    }
    return {**result, "wrong": problem} if problem else result


def _until(watched: Watched, wanted: int, process: subprocess.Popen[bytes], log: Path) -> tuple[float, int]:
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        count, now_s = watched.count(), time.monotonic()
        if count >= wanted:
            return now_s, count
        if process.poll() is not None or now_s > deadline_s:
            raise SystemExit(f"{count} of {wanted} records, then: {log.read_text(errors='replace')[-3_000:]}")
        time.sleep(0.05)


def _wrong(race: Race, records: int) -> str:
    """Faults of the output, empty when there are none."""
    seen: dict[str, list[int]] = {}
    for value in _read(race, records):
        seen.setdefault(value["key"], []).append(value["count"])
    total = sum(map(len, seen.values()))
    if total != records:
        return f"{total} outputs of {records} records"
    per_key = records // KEYS
    expected = {"count": lambda: list(range(1, per_key + 1)), "pass": lambda: None}[race.work]()
    bad = sum(sorted(counts) != expected for counts in seen.values()) if expected else 0
    return f"{bad} of {len(seen)} keys have wrong counts" if bad else ""


def _read(race: Race, records: int) -> Iterator[dict[str, object]]:
    consumer = reader(race)
    found, quiet_s = 0, time.monotonic()
    while found <= records and time.monotonic() - quiet_s < 5:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                found, quiet_s = found + 1, time.monotonic()
                yield orjson.loads(message.value())
    consumer.close()


def run(names: Sequence[str], works: Sequence[str], records: int, rounds: int) -> dict[str, object]:
    """Every contestant once a round, in turn."""
    contestants = {**CONTESTANTS, **VARIANTS}
    found: dict[str, dict[str, list[dict[str, object]]]] = {
        work: {name: [] for name in names} for work in works
    }
    with tempfile.TemporaryDirectory() as directory:
        cluster = KafkaCluster(Path(directory) / "broker")
        cluster.start()
        try:
            fill(cluster.bootstrap, "in", records)
            for number in range(rounds):
                for work in works:
                    for name in names:
                        turn = f"{name.replace(' ', '-')}-{work}-{number}"
                        race = Race(cluster.bootstrap, "in", turn, work, Path(directory) / turn)
                        race.directory.mkdir()
                        found[work][name].append(measure(contestants[name], race, records))
                        print(turn, found[work][name][-1], file=sys.stderr, flush=True)
        finally:
            cluster.stop()
    rates, cpu = (
        {
            work: {
                name: statistics.median(float(str(turn[measured])) for turn in turns)
                for name, turns in by_name.items()
            }
            for work, by_name in found.items()
        }
        for measured in ("records_per_s", "cpu_us")
    )
    return {"median_records_per_s": rates, "median_cpu_us": cpu, "turns": found}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_peers")
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[*CONTESTANTS, *VARIANTS], default=list(CONTESTANTS))
    parser.add_argument("--work", nargs="+", choices=("count", "pass"), default=["count", "pass"])
    parser.add_argument("--discard", action="store_true", help="do not keep the result")
    given = parser.parse_args()
    assert given.records % KEYS == 0
    assert given.records > WARM_UP
    figures = {
        **surroundings(),
        "records": given.records,
        **run(given.only, given.work, given.records, given.rounds),
    }
    keep(figures, kind="kafka-peers", is_discarded=given.discard)


if __name__ == "__main__":
    main()
