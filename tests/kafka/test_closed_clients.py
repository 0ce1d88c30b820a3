"""What is closed leaves no client behind: each has threads that look for their brokers for as long as it lives."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.kafka import KafkaCoordination
from grete.kafka.client import KafkaConnection
from grete.kafka.producer import NotWritten, TransactionalProducer, transaction_producer
from grete.kafka.settings import KafkaLogSettings
from grete.kafka.topics import Topics, TopicSettings
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.model.streams import StreamSpec
from grete.systems.factory import open_system
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

_Use = Callable[[KafkaLogSettings, str, Path], None]


def clients() -> int:
    """Each has one thread of this name."""
    found = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found += (thread / "comm").read_text().strip() == "rdk:main"
    return found


def a_log(settings: KafkaLogSettings, topic: str, home: Path) -> None:
    with closing(KafkaKeyedLog(topic, settings, SystemClock())) as log:
        log.append([Entry(b"k", b"v")], fence=Fence("scope", 2))
        assert list(log.read())


def an_election(settings: KafkaLogSettings, topic: str, home: Path) -> None:
    with closing(KafkaCoordination(settings, SystemClock(), topic_prefix=topic)) as coordination:
        coordination.renew(coordination.campaign("scope"))
        coordination.cells("scope").write("a", b"1", None)


def a_system(settings: KafkaLogSettings, topic: str, home: Path) -> None:
    config = {
        "systems.kafka.samza.factory": "kafka",
        "systems.kafka.producer.bootstrap.servers": settings.client["bootstrap.servers"],
        "systems.kafka.default.stream.replication.factor": "1",
        "task.checkpoint.replication.factor": "1",
    }
    with closing(open_system(Settings.of(config), "kafka", home, SystemClock())) as system:
        system.ensure_stream(StreamSpec(topic, 2))
        assert system.offsets(topic)
        system.checkpoint_log(f"{topic}-log").append([Entry(b"k", b"v")])
        system.begin_epoch(Fence(f"container/{topic}/0", 5))


@pytest.fixture
def uncollected() -> Iterator[None]:
    """A collection would free clients that only a cycle keeps."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("use", [a_log, an_election, a_system])
def test_the_clients_of_what_is_closed_are_gone_at_once(
    use: _Use, kafka: KafkaCluster, tmp_path: Path, uncollected: None
) -> None:
    settings = KafkaLogSettings({"bootstrap.servers": kafka.bootstrap}, replication_factor=1)
    before = clients()
    use(settings, f"closed-{uuid.uuid4().hex[:8]}", tmp_path)
    eventually(lambda: clients() <= before, "the end of their threads")


def test_a_producer_that_was_fenced_off_keeps_no_client_of_its_callers_alive(kafka: KafkaCluster) -> None:
    before = clients()
    be_fenced_off(kafka.bootstrap)
    gc.collect()
    eventually(lambda: clients() <= before, "the end of their threads")


def be_fenced_off(bootstrap: str) -> None:
    """Amid a transaction of which many records are still to be reported."""
    clock, id_ = SystemClock(), f"fenced-{uuid.uuid4().hex[:8]}"
    connection = KafkaConnection({"bootstrap.servers": bootstrap}, 20.0, clock)
    deadline_s = clock.monotonic_s() + patient(60.0)
    Topics(connection, "kafka", clock).create(id_, 1, TopicSettings(1, "", {}))
    old, new = (
        TransactionalProducer(lambda: transaction_producer(connection, id_, 60.0), clock) for _ in range(2)
    )
    old.open(deadline_s)
    old.begin()
    new.open(deadline_s)

    def write() -> None:
        for number in range(1_000):  # where the client hears of it soon, it takes no more
            old.produce(id_, 0, b"key", str(number).encode())
        old.settle(deadline_s)

    with pytest.raises(NotWritten):
        write()
    old.abort(deadline_s)
