"""Brokers that tests of faults have for themselves, since they kill them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.testing.kafka_broker import KafkaCluster


def started(directory: Path, nodes: int) -> Iterator[KafkaCluster]:
    own = KafkaCluster(directory / "kafka", nodes=nodes)
    own.start()
    yield own
    own.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    """One broker."""
    yield from started(tmp_path, 1)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Three of them."""
    yield from started(tmp_path, 3)
