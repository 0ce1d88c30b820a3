"""The log on Kafka when brokers, networks and writers fail. Acknowledged and lost: 0. Written twice: 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from tests.support.tcp_proxy import TcpProxy

from grete.clock import SystemClock
from grete.errors import Fenced, InDoubt, LogCorrupted, LogError, LogUnreachable, UnsafeStorage
from grete.kafka.epoch import writer_id
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log import kafka_header
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = pytest.mark.fault

WRITER = """
import sys
from grete.clock import SystemClock
from grete.errors import GreteError
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.kafka import KafkaKeyedLog
from grete.kafka.settings import KafkaLogSettings
settings = KafkaLogSettings({"bootstrap.servers": sys.argv[1]}, replication_factor=1, transaction_timeout_s=1.0)
log = KafkaKeyedLog(sys.argv[2], settings, SystemClock())
for number in range(int(sys.argv[3])):
    try:
        log.append([Entry(b"a%d" % number, b"x"), Entry(b"b%d" % number, b"y")], fence=Fence("job", 1))
    except GreteError as error:
        print(type(error).__name__, flush=True)
        sys.exit(3)
    print(number, flush=True)
"""
OpenLog = Callable[..., KafkaKeyedLog]


@pytest.fixture
def kafka(cluster: KafkaCluster) -> KafkaCluster:
    """These tests kill it."""
    return cluster


Answer = TypeVar("Answer")


@pytest.fixture
def name() -> str:
    return f"log-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def open_log(kafka: KafkaCluster, name: str) -> Iterator[OpenLog]:
    """Opens the log `name`; keywords are settings, `servers` the brokers to go to."""
    with ExitStack() as stack:

        def open_one(servers: str = "", **settings: Any) -> KafkaKeyedLog:
            given = {"replication_factor": 1, "transaction_timeout_s": 2.0, **settings}
            log = KafkaKeyedLog(
                name,
                KafkaLogSettings({"bootstrap.servers": servers or kafka.bootstrap}, **given),
                SystemClock(),
            )
            stack.callback(log.close)
            return log

        yield open_one


@pytest.fixture
def through(kafka: KafkaCluster, proxy: TcpProxy) -> str:
    return f"127.0.0.1:{kafka.nodes[0].proxied_port}"


def pair(number: int) -> list[Entry]:
    return [Entry(b"a%d" % number, b"x"), Entry(b"b%d" % number, b"y")]


def numbers(log: KafkaKeyedLog) -> list[int]:
    """The appended pairs that are there, each checked to be whole."""
    keys = [record.key for record in log.read()]
    assert [key[:1] for key in keys] == [b"a", b"b"] * (len(keys) // 2)
    assert [key[1:] for key in keys[::2]] == [key[1:] for key in keys[1::2]]
    return [int(key[1:]) for key in keys[::2]]


def test_a_broker_that_is_killed_during_appends_and_comes_back_loses_and_doubles_nothing(
    kafka: KafkaCluster, open_log: OpenLog
) -> None:
    log, acknowledged, stop = open_log(timeout_s=60.0), [], threading.Event()

    def write() -> None:
        while not stop.is_set():
            log.append(pair(len(acknowledged)), fence=Fence("job", 1))
            acknowledged.append(len(acknowledged))

    writer = threading.Thread(target=write)
    writer.start()
    while len(acknowledged) < 10:
        time.sleep(0.01)
    kafka.kill()
    kafka.restart()
    reached = len(acknowledged)
    while len(acknowledged) < reached + 5 and writer.is_alive():
        time.sleep(0.01)
    stop.set()
    writer.join()
    assert len(acknowledged) >= reached + 5, "the writer did not go on"
    assert numbers(open_log()) == acknowledged


def test_what_a_killed_broker_forgot_to_end_is_ended_by_who_opens_the_id_and_does_not_come_back(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    log = open_log(timeout_s=60.0)
    log.append(pair(0), fence=Fence("job", 1))
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": writer_id(name, "job")}
    dying = Producer({**settings, "transaction.timeout.ms": 1_000})
    dying.init_transactions(30)
    dying.begin_transaction()
    dying.produce(name, key=b"torn", value=b"", partition=0)
    dying.flush(30)
    kafka.kill()
    kafka.restart()  # the transaction is over for the coordinator, and mostly not for the partition
    log.append(pair(1), fence=Fence("job", 1))
    assert numbers(open_log()) == [0, 1]


@pytest.mark.nightly  # `test_kafka_starts` kills it while a whole job reads
def test_a_broker_that_is_killed_during_a_bootstrap_comes_back_and_the_reader_goes_on(
    kafka: KafkaCluster, open_log: OpenLog
) -> None:
    log = open_log(timeout_s=60.0)
    for first in range(0, 60_000, 20_000):
        log.append([Entry(b"%d" % number, bytes(1_000)) for number in range(first, first + 20_000)])
    reading = open_log(timeout_s=60.0).read()
    keys = [next(reading).key]
    kafka.kill()
    keys += [next(reading).key for _ in range(1_000)]
    kafka.restart()
    keys += [record.key for record in reading]
    assert keys == [b"%d" % number for number in range(60_000)]


def start_writer(kafka: KafkaCluster, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, kafka.bootstrap, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_writer_that_was_paused_while_another_took_over_writes_nothing_and_ends(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    zombie = start_writer(kafka, name, 100_000)
    assert zombie.stdout is not None
    for _ in range(5):
        zombie.stdout.readline()
    zombie.send_signal(signal.SIGSTOP)
    successor = open_log()
    successor.raise_fence(Fence("job", 2))
    before = numbers(successor)
    zombie.send_signal(signal.SIGCONT)
    *_, last = zombie.communicate(timeout=patient(60))[0].split()
    assert (zombie.returncode, last) == (3, "Fenced")
    successor.append(pair(1_000_000), fence=Fence("job", 2))
    assert numbers(open_log()) == [*before, 1_000_000]


def test_a_writer_that_was_paused_longer_than_its_transaction_lives_goes_on(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    writer = start_writer(kafka, name, 60)
    assert writer.stdout is not None
    for _ in range(5):
        writer.stdout.readline()
    for _ in range(2):
        writer.send_signal(signal.SIGSTOP)
        time.sleep(2.5)  # the broker aborts what is open after 1 s
        numbers(open_log())
        writer.send_signal(signal.SIGCONT)
        writer.stdout.readline()
    writer.communicate(timeout=patient(60))
    assert writer.returncode == 0
    assert numbers(open_log()) == list(range(60))


def test_killed_at_any_moment_what_was_acknowledged_is_there_and_nothing_is_torn(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    for lines in (1, 3, 7):
        process = start_writer(kafka, f"{name}-{lines}", 100_000)
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        process.kill()
        acknowledged = lines + len(process.communicate()[0].split())
        log = KafkaKeyedLog(
            f"{name}-{lines}",
            KafkaLogSettings({"bootstrap.servers": kafka.bootstrap}, replication_factor=1),
            SystemClock(),
        )
        log.raise_fence(Fence("job", 2))  # ends what the dead writer has left open
        present = numbers(log)
        log.close()
        assert present == list(range(len(present)))
        assert acknowledged <= len(present) <= acknowledged + 1


def patiently(ask: Callable[[], Answer]) -> Answer:
    """As callers do, who ask until there is an answer: a busy machine takes longer than the log waits here."""
    deadline_s = time.monotonic() + patient(60)
    while True:
        try:
            return ask()
        except LogUnreachable:
            if time.monotonic() > deadline_s:
                raise


def test_an_append_whose_answer_is_swallowed_is_in_doubt_until_it_is_resolved(
    open_log: OpenLog, proxy: TcpProxy, through: str
) -> None:
    log = open_log(through, timeout_s=4.0, transaction_timeout_s=2.0)
    log.append(pair(0), fence=Fence("job", 1))
    outcomes = set()
    rounds = 4 if os.environ.get("GRETE_NIGHTLY") == "1" else 2
    for number in range(1, rounds + 1):
        timer = threading.Timer(0.004 * number, proxy.swallow)
        timer.start()
        try:
            for _ in range(1_000):
                log.append([], fence=Fence("job", 1))
                log.append(pair(number), fence=Fence("job", 1), append_id=f"id-{number}")
        except InDoubt as doubt:
            outcomes.add(doubt.append_id)
        except LogError:
            outcomes.add("failed")
        timer.join()
        proxy.restore()
        id_ = f"id-{number}"
        if patiently(partial(log.resolve, id_)) is None:
            patiently(partial(log.append, pair(number), fence=Fence("job", 1), append_id=id_))
    assert outcomes, "nothing was swallowed"
    assert numbers(open_log()) == list(range(rounds + 1))


def test_slow_and_cut_connections_delay_appends_and_nothing_else(
    open_log: OpenLog, proxy: TcpProxy, through: str
) -> None:
    log = open_log(through)
    for number in range(12):
        if number % 4 == 1:
            proxy.delay(0.05)
        if number % 4 == 2:
            proxy.cut()
            threading.Timer(0.3, proxy.restore).start()
        if number % 4 == 3:
            proxy.restore()
        log.append(pair(number), fence=Fence("job", 1))
    assert numbers(open_log()) == list(range(12))


def test_no_broker_is_an_error_that_says_so_and_the_same_log_works_when_it_is_back(
    open_log: OpenLog, proxy: TcpProxy, through: str
) -> None:
    open_log().append(pair(0))  # makes the topic, which takes longer than the other waits
    log = open_log(through, timeout_s=2.0)
    proxy.cut()
    with pytest.raises(LogError, match="broker"):
        log.append(pair(9))
    with pytest.raises(LogError, match="broker"):
        log.end()
    proxy.restore()
    patiently(partial(log.append, pair(1)))
    assert numbers(log) == [0, 1]


def test_a_topic_that_was_deleted_or_recreated_is_noticed_and_not_written(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    writer, reader = open_log(timeout_s=5.0), open_log(timeout_s=5.0)
    for number in range(3):
        writer.append(pair(number), fence=Fence("job", 1))
    assert numbers(reader) == [0, 1, 2]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([name])[name].result(60)
    with pytest.raises(LogCorrupted, match="deleted"):
        writer.append(pair(3), fence=Fence("job", 1))
    open_log()
    with pytest.raises(LogCorrupted, match="recreated"):
        writer.append(pair(3), fence=Fence("job", 1))
    with pytest.raises(LogCorrupted, match="recreated"):
        list(reader.read())
    assert list(open_log().read()) == []


def test_a_record_that_is_too_large_is_refused_with_the_limit_and_nothing_is_written(
    open_log: OpenLog,
) -> None:
    log = open_log()
    with pytest.raises(LogError, match=r"up to 1000012 bytes.*b'big'.*job.coordinator.max.message.bytes"):
        log.append([Entry(b"small", b"1"), Entry(b"big", bytes(1_000_000))])
    log.append([Entry(b"fits", bytes(999_000))])
    log.append([Entry(b"%d" % number, bytes(400_000)) for number in range(10)])
    assert [record.key for record in log.read()] == [b"fits", *(b"%d" % number for number in range(10))]


def test_a_topic_that_deletes_by_age_or_has_two_partitions_is_refused(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for policy in ("delete", "compact,delete"):
        topic = f"{name}-{policy[:8].replace(',', '-')}"
        admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": policy})])[topic].result(60)
        settings = KafkaLogSettings({"bootstrap.servers": kafka.bootstrap}, replication_factor=1)
        with pytest.raises(UnsafeStorage, match="add-config cleanup"):
            KafkaKeyedLog(topic, settings, SystemClock())
    open_log()
    admin.create_partitions([NewPartitions(name, 2)])[name].result(60)
    with pytest.raises(UnsafeStorage, match="2 partitions"):
        open_log()


def test_many_who_open_a_new_log_at_once_find_one_topic_as_samza_makes_it(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    with ThreadPoolExecutor(6) as pool:
        logs = list(pool.map(lambda _: open_log(), range(6)))
    for number, log in enumerate(logs):
        log.append(pair(number))
    assert numbers(logs[0]) == list(range(6))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, name)
    config = admin.describe_configs([resource])[resource].result(60)
    assert (config["cleanup.policy"].value, config["segment.bytes"].value) == ("compact", "26214400")
    assert len(admin.list_topics(name, timeout=patient(60)).topics[name].partitions) == 1


def test_more_copies_than_brokers_is_refused_with_the_way_out(open_log: OpenLog) -> None:
    with pytest.raises(LogError, match=r"cannot have 3 copies.*job.coordinator.replication.factor"):
        open_log(replication_factor=3)


def test_foreign_records_are_read_and_late_ones_of_a_fenced_writer_are_not(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    log = open_log()
    log.append([Entry(b"k", b"first")], fence=Fence("job", 1))
    log.append([Entry(b"k", b"second")], fence=Fence("job", 2))
    foreign = Producer({"bootstrap.servers": kafka.bootstrap})
    late = kafka_header.encode(kafka_header.AppendOrigin(1, "id", "job"))
    for headers, value in (
        ([], b"foreign"),
        ([("grete", b"not ours"), ("other", b"")], b"strange"),
        ([("grete", kafka_header.with_remaining(0, late))], b"late"),
    ):
        foreign.produce(name, key=b"k", value=value, headers=headers)
    foreign.flush(10)
    assert [(record.value, record.epoch) for record in open_log().read()] == [
        (b"first", 1),
        (b"second", 2),
        (b"foreign", None),
        (b"strange", None),
    ]
    with pytest.raises(Fenced):
        log.append([], fence=Fence("job", 1))


def test_a_writer_that_was_replaced_and_finds_its_epoch_forgotten_stops(
    kafka: KafkaCluster, name: str, open_log: OpenLog
) -> None:
    log = open_log()
    log.append(pair(0), fence=Fence("job", 1))
    id_ = f"grete-{name}-scope-job"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_consumer_groups([id_])[id_].result(60)
    log.append(pair(1), fence=Fence("job", 1))
    Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": id_}).init_transactions(30)
    with pytest.raises(LogError, match="it is unknown whether"):
        log.append(pair(2), fence=Fence("job", 1))
    assert numbers(open_log()) == [0, 1]


@pytest.mark.nightly  # `test_one_of_three_brokers_dies_and_the_job_goes_on` has this log in it
def test_three_brokers_go_on_when_one_dies(three: KafkaCluster, name: str) -> None:
    settings = KafkaLogSettings({"bootstrap.servers": three.bootstrap}, timeout_s=60.0)
    log = KafkaKeyedLog(name, settings, SystemClock())
    for number in range(5):
        log.append(pair(number), fence=Fence("job", 1))
    three.kill(1)
    for number in range(5, 10):
        log.append(pair(number), fence=Fence("job", 1))
    assert numbers(log) == list(range(10))
    log.close()
