"""Loads the flights into the topic `flights`, each to the partition that it has on the embedded system.

Can be killed at any moment and run again: the sequence of each partition is always the same, and an idempotent
producer writes it in order without gaps, so what a partition holds is its beginning, and only the rest is sent.
"""

from __future__ import annotations

from itertools import islice

from confluent_kafka import Producer
from load import PARTITIONS, STREAM, Show, read_flights

from grete.model.streams import StreamSpec
from grete.systems.base import System

_SHOWN_EVERY = 25_000


def load_topic(bootstrap: str, system: System, flights: int, show: Show) -> int:
    """Send those of the first `flights` that are not there yet; returns how many those were."""
    system.create_stream(StreamSpec(STREAM, PARTITIONS))
    present = {p: int(offsets.upcoming) for p, offsets in system.offsets(STREAM).items()}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 50,
            "compression.type": "lz4",
            "log_level": 3,
        }
    )
    sent = 0
    for number, flight in enumerate(islice(read_flights(), flights), 1):
        partition = flight.partition
        assert partition is not None
        if present[partition]:
            present[partition] -= 1
            continue
        while True:
            try:
                producer.produce(STREAM, flight.value, flight.key, partition, timestamp=flight.timestamp_ms)
                break
            except BufferError:  # the queue is full: the broker is slower than we are
                producer.poll(0.1)
        sent += 1
        if number % _SHOWN_EVERY == 0:
            show(number)
    left = producer.flush(60)
    assert left == 0, f"{left} flights could not be sent"
    return sent
