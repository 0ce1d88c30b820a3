"""`make bench-kafka BENCH=kafka_latency`: time from `produce` to a read_committed reader, by grete and its peers.

The work, its records and how each contestant is started are those of `kafka_peers`. Contestants run one after the
other, each alone beside the broker and this process, whose reader takes outputs as they become visible.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.contestants import (
    CONTESTANTS,
    PIPELINES,
    VARIANTS,
    Race,
    keep,
    make_topic,
    reader,
    surroundings,
)
from benchmarks.latency import Failed, Load, Outputs, Pace, Turn, arguments, busy, head, in_short, turn
from grete.testing.kafka_broker import KafkaCluster


class KafkaOutputs(Outputs):
    """See Outputs."""

    def __init__(self, race: Race) -> None:
        super().__init__(race.work)
        self._race = race

    def arrivals(self, is_over: Callable[[], bool]) -> Iterator[bytes]:
        consumer = reader(self._race, **{"fetch.wait.max.ms": 5})
        while not is_over():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                yield message.value() or b""
        consumer.close()


class KafkaLoad(Load):
    """See Load."""

    def __init__(self, race: Race) -> None:
        super().__init__()
        self._topic = race.source
        self._producer = Producer(
            {"bootstrap.servers": race.bootstrap, "linger.ms": 2, "partitioner": "murmur2_random"}
        )

    def give(self, key: str, value: bytes) -> None:
        self._producer.produce(self._topic, value, key)

    def push(self) -> None:
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


def measure(contestant: str, race: Race, pace: Pace) -> list[Turn]:
    """One contestant at each rate, with topics of its own."""
    for topic in (race.source, race.target):
        make_topic(race.bootstrap, topic)
    if contestant not in ("grete", "grete isolated", "pipeline"):
        pace = replace(pace, change_every_s=0.0)
    return turn(
        {**CONTESTANTS, **VARIANTS, **PIPELINES}[contestant](race),
        race,
        KafkaLoad(race),
        KafkaOutputs(race),
        pace,
    )


def run(names: Sequence[str], works: Sequence[str], pace: Pace) -> dict[str, Any]:
    """Every work by every contestant; `latency_ms` is of the first rate, `turns` has all of them in full."""
    turns: dict[str, dict[str, list[Turn]]] = {work: {} for work in works}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        cluster = KafkaCluster(Path(directory) / "broker")
        cluster.start()
        try:
            for work, name in ((work, name) for work in works for name in names):
                label = f"{name.replace(' ', '-')}-{work}"
                race = Race(cluster.bootstrap, f"in-{label}", label, work, Path(directory) / label)
                race.directory.mkdir()
                try:
                    turns[work][name] = measure(name, race, pace)
                    print(label, turns[work][name], file=sys.stderr, flush=True)
                except Failed as error:
                    failed[label] = str(error)
                    print(label, error, file=sys.stderr, flush=True)
        finally:
            cluster.stop()
    return {"latency_ms": in_short(turns), "turns": turns, "failed": failed}


def main() -> int:
    """Measure, print, keep; 1 when a contestant failed."""
    parser = arguments("kafka_latency")
    parser.add_argument(
        "--only", nargs="+", choices=[*CONTESTANTS, *VARIANTS, *PIPELINES], default=list(CONTESTANTS)
    )
    given = parser.parse_args()
    figures = {**surroundings(), **head(given)}
    with busy(given.beside):
        figures |= run(given.only, given.work, Pace(given.rate, given.seconds, given.change_every))
    keep(figures, kind="kafka-latency", is_discarded=given.discard)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
