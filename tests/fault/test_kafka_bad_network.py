"""A whole job whose way to its broker drops, delays and cuts, again and again: every record is counted once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import job_on
from tests.support.tcp_proxy import TcpProxy

from grete.testing.kafka_broker import KafkaCluster

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(240)]

FAULTS = 60
SEEDS = range(5)


@contextmanager
def trouble(proxy: TcpProxy, seed: int) -> Iterator[threading.Event]:
    """Faults of a few moments with moments between them, as the seed says; the event is set when all have been."""
    chance, done, stop = random.Random(seed), threading.Event(), threading.Event()

    def faults() -> None:
        for _ in range(FAULTS):
            fault = chance.choice((proxy.cut, proxy.swallow, lambda: proxy.delay(chance.uniform(0.01, 0.3))))
            fault()
            stop.wait(chance.uniform(0.05, 1.5))
            proxy.restore()
            stop.wait(chance.uniform(0.2, 1.5))
        done.set()

    thread = threading.Thread(target=faults)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_network_that_drops_delays_and_cuts_costs_no_record(
    kafka: KafkaCluster, proxy: TcpProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    brokers = f"127.0.0.1:{kafka.nodes[0].proxied_port}"
    with job_on(kafka, tmp_path / "job", monkeypatch, brokers=brokers) as job:
        process = job.submit()
        job.send(200)
        job.await_counted()
        with trouble(proxy, seed) as is_over:
            while not is_over.is_set():
                job.send(100)
                is_over.wait(1.0)
        job.send(100)
        job.await_counted()
        assert process.poll() is None
        assert "container-exited" not in job.events()
        job.stop()
        job.assert_each_counted_once()
