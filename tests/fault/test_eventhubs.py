"""Event Hubs as a system, on a broker with logins as the service has them and without transactions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.secure_kafka import SecureCluster

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.errors import ConfigError, Fenced, LoginRefused, OffsetOutOfRange, StreamError, StreamNotFound
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.eventhubs.hash import partition_of_key
from grete.systems.eventhubs.system import EventHubsSystem
from grete.systems.factory import open_system
from grete.systems.records import pack, records

pytestmark = pytest.mark.fault
FENCE = Fence("container/j-1/0", 3)
Open = Callable[..., EventHubsSystem]


def make_hub(secure: SecureCluster, partitions: int = 2, **config: str) -> str:
    """With the broker's tools, as hubs are made with Azure's."""
    name = f"hub-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": secure.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    settings["retention.ms"] = "-1"  # the records of these tests are old
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
    return name


def fill(
    secure: SecureCluster, hub: str, *values: bytes, partition: int = 0, timestamp_ms: int = 1_000
) -> None:
    producer = Producer({"bootstrap.servers": secure.bootstrap})
    for value in values:
        producer.produce(hub, value, b"k", partition, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


def configuration(secure: SecureCluster, hub: str) -> dict[str, str]:
    """Samza's keys, and where the endpoint is in place of Azure's."""
    return {
        "job.name": "j",
        "systems.hubs.samza.factory": "org.apache.samza.system.eventhub.EventHubSystemFactory",
        "systems.hubs.consumer.bootstrap.servers": secure.secure_bootstrap,
        "systems.hubs.consumer.ssl.truststore.location": str(secure.login.authority.ca_pem),
        "systems.hubs.consumer.ssl.truststore.type": "PEM",
        "streams.flights.samza.system": "hubs",
        "streams.flights.eventhubs.namespace": "flights",
        "streams.flights.eventhubs.entitypath": hub,
        "sensitive.streams.flights.eventhubs.sas.keyname": "all",
        "sensitive.streams.flights.eventhubs.sas.token": "${env:FLIGHTS_KEY}",
        "task.checkpoint.system": "local",
        "stores.s.factory": "grete.store.sqlite",
    }


@pytest.fixture
def open_hubs(secure_kafka: SecureCluster, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setenv("FLIGHTS_KEY", "aGlkZGVuIGluIHNpZ2h0")
    with ExitStack() as stack:

        def open_one(hub: str, **changes: str) -> EventHubsSystem:
            config = {**configuration(secure_kafka, hub), **changes}
            system = open_system(Settings.of(config), "hubs", home, SystemClock())
            stack.callback(system.close)
            assert isinstance(system, EventHubsSystem)
            return system

        yield open_one


def segment(stream: str, partition: int, *values: bytes) -> SegmentWrite:
    data = pack([b"k"] * len(values), list(values), [1] * len(values))
    return SegmentWrite(stream, partition, len(values), data)


def values_of(system: EventHubsSystem, stream: str, partition: int = 0) -> list[bytes]:
    return [value for _, batch in system.read(stream, partition, 0) for value in batch.column(1).to_pylist()]


def test_a_hub_is_read_by_samzas_keys_through_its_kafka_endpoint(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hub = make_hub(secure_kafka)
    fill(secure_kafka, hub, b"1", b"2", timestamp_ms=1_000)
    fill(secure_kafka, hub, b"3", timestamp_ms=2_000)
    hubs = open_hubs(hub)
    assert hubs.partition_count("flights") == 2
    assert values_of(hubs, "flights") == [b"1", b"2", b"3"]
    held = hubs.offsets("flights")
    assert (held[0].oldest, held[0].newest, held[0].upcoming) == ("0", "2", "3")
    assert held[1].oldest is None
    ssp = SystemStreamPartition("hubs", "flights", 0)
    assert [hubs.offset_at(ssp, time_ms) for time_ms in (1_500, 9_000)] == ["2", "3"]
    assert "flights" in hubs.streams()
    assert hub not in hubs.streams()


def test_outputs_go_to_hubs_and_everything_else_to_the_other_system(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hubs = open_hubs(make_hub(secure_kafka))
    hubs.ensure_stream(StreamSpec("j-1-s-changelog", 1, compacted=True))
    group = CommitGroup(
        [FENCE],
        [segment("flights", 1, b"a", b"b"), segment("j-1-s-changelog", 0, b"change")],
        "checkpoints",
        [Entry(b"task", b"done")],
    )
    assert hubs.commit(group) == {("flights", 1): 2, ("j-1-s-changelog", 0): 1}
    assert values_of(hubs, "flights", 1) == [b"a", b"b"]
    assert values_of(hubs, "j-1-s-changelog") == [b"change"]
    assert [record.value for record in hubs.checkpoint_log("checkpoints").read()] == [b"done"]


def test_records_are_appended_by_hand_where_their_keys_belong(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hubs = open_hubs(make_hub(secure_kafka, 8))
    keys = [b"a", b"b", b"c"]
    assert hubs.append("flights", [*(Message(key, key, 1) for key in keys), Message(None, b"-", 1, 7)]) == 4
    for key in keys:
        assert key in values_of(hubs, "flights", partition_of_key(key, 8))
    assert values_of(hubs, "flights", 7)[-1] == b"-"
    assert not hubs.is_compacted("flights")
    with pytest.raises(StreamError, match="partitions 0 to 7, not 8"):
        hubs.append("flights", [Message(None, b"-", 1, 8)])


def test_when_the_second_step_fails_records_on_hubs_are_there_and_are_sent_again(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hubs = open_hubs(make_hub(secure_kafka))
    segments = [segment("flights", 0, b"a"), segment("j-1-s-changelog", 0, b"change")]
    group = CommitGroup([FENCE], segments, "checkpoints", [Entry(b"task", b"done")])
    with pytest.raises(StreamNotFound):
        hubs.commit(group)
    assert list(hubs.checkpoint_log("checkpoints").read()) == []
    hubs.ensure_stream(StreamSpec("j-1-s-changelog", 1, compacted=True))
    hubs.commit(group)
    assert values_of(hubs, "flights") == [b"a", b"a"]
    assert values_of(hubs, "j-1-s-changelog") == [b"change"]
    assert [record.value for record in hubs.checkpoint_log("checkpoints").read()] == [b"done"]


def test_who_was_succeeded_sends_nothing_more(secure_kafka: SecureCluster, open_hubs: Open) -> None:
    hub = make_hub(secure_kafka)
    old, new = open_hubs(hub), open_hubs(hub)
    new.raise_fence([Fence(FENCE.scope, FENCE.epoch + 1)])
    with pytest.raises(Fenced):
        old.commit(CommitGroup([FENCE], [segment("flights", 0, b"late")], "checkpoints", []))
    assert values_of(new, "flights") == []


def test_a_worker_sends_to_hubs_and_commits_everything_else_in_the_other_system(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hub = make_hub(secure_kafka)
    hubs = open_hubs(hub)
    hubs.ensure_stream(StreamSpec("j-1-s-changelog", 1, compacted=True))
    slot = hubs.transactions([FENCE], 0, ["checkpoints", "flights", "j-1-s-changelog"])
    slot.open(0)
    slot.begin()
    slot.send_batch("flights", 1, records([b"k"], [b"a"], [1]))
    slot.send_batch("j-1-s-changelog", 0, records([b"k"], [b"change"], [1]), after=0)
    assert slot.settle(0) == {("flights", 1): 1, ("j-1-s-changelog", 0): 1}
    slot.send_entries("checkpoints", [Entry(b"task", b"done")], 1)
    slot.settle(0)
    assert values_of(hubs, "flights", 1) == [b"a"], "sent once, and before the commit"
    assert values_of(hubs, "j-1-s-changelog") == []
    slot.commit(0)
    assert values_of(hubs, "j-1-s-changelog") == [b"change"]
    assert [record.value for record in hubs.settled_records("checkpoints", -1)] == [b"done"]


def test_a_worker_of_a_container_that_was_succeeded_sends_nothing_more(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hub = make_hub(secure_kafka)
    old, new = open_hubs(hub), open_hubs(hub)
    slot = old.transactions([FENCE], 0, ["checkpoints", "flights"])
    slot.open(0)
    new.raise_fence([Fence(FENCE.scope, FENCE.epoch + 1)])
    slot.begin()
    slot.send_batch("flights", 0, records([b"k"], [b"late"], [1]))
    with pytest.raises(Fenced):
        slot.settle(0)
    assert values_of(new, "flights") == []


def test_hubs_and_their_partitions_are_made_with_azures_tools(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hubs = open_hubs(make_hub(secure_kafka))
    hubs.create_stream(StreamSpec("flights", 2))
    with pytest.raises(StreamError, match=r"az eventhubs eventhub update.*--partition-count 4"):
        hubs.add_partitions("flights", 4)
    missing = open_hubs("not-there")
    with pytest.raises(StreamNotFound, match=r"az eventhubs eventhub create"):
        missing.partition_count("flights")
    with pytest.raises(StreamError, match=r"az eventhubs eventhub create.*--partition-count 8"):
        missing.create_stream(StreamSpec("flights", 8))
    with pytest.raises(StreamError, match="changelog is compacted"):
        hubs.ensure_stream(StreamSpec("flights", 2, compacted=True))


def test_there_are_no_transactions_where_these_tests_run(secure_kafka: SecureCluster, home: Path) -> None:
    """The broker refuses the user's transactional ids, so what passes here needs none on hubs."""
    login = {
        "bootstrap.servers": secure_kafka.secure_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": secure_kafka.login.users["$ConnectionString"],
        "ssl.ca.location": str(secure_kafka.login.authority.ca_pem),
    }
    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        Producer({**login, "transactional.id": "any"}).init_transactions(30)


def test_a_wrong_key_is_reported_with_samzas_key_for_it(
    secure_kafka: SecureCluster, open_hubs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHTS_KEY", "not-the-key")
    hubs = open_hubs("hub")
    with pytest.raises(LoginRefused, match=r"sensitive\.streams\.flights\.eventhubs\.sas\.token") as refused:
        hubs.partition_count("flights")
    assert "not-the-key" not in str(refused.value)


def test_what_is_larger_than_the_service_takes_is_refused_and_not_dropped(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    limited = {"systems.hubs.eventhubs.skipMessagesLargerThanBytes": "10"}
    for changes, hub in (
        (limited, make_hub(secure_kafka)),
        ({}, make_hub(secure_kafka, max_message_bytes="1000")),
    ):
        hubs = open_hubs(hub, **changes)
        group = CommitGroup([FENCE], [segment("flights", 0, b"x" * 2_000)], "checkpoints", [])
        with pytest.raises(StreamError, match="1 MB, on the basic tier"):
            hubs.commit(group)


def test_keys_are_left_out_when_the_configuration_says_so(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hubs = open_hubs(make_hub(secure_kafka), **{"systems.hubs.eventhubs.send.key": "false"})
    hubs.commit(CommitGroup([FENCE], [segment("flights", 0, b"a")], "checkpoints", []))
    [(_, batch)] = hubs.read("flights", 0, 0)
    assert batch.column(0).to_pylist() == [None]


def test_records_that_the_service_has_let_go_are_named(secure_kafka: SecureCluster, open_hubs: Open) -> None:
    hub = make_hub(secure_kafka)
    fill(secure_kafka, hub, b"1", b"2", b"3")
    hubs = open_hubs(hub)
    admin = AdminClient({"bootstrap.servers": secure_kafka.bootstrap})
    for done in admin.delete_records([TopicPartition(hub, 0, 2)]).values():
        done.result(30)
    with pytest.raises(OffsetOutOfRange, match="from 0 to before 2"):
        values_of(hubs, "flights")


def test_a_system_without_another_one_beside_it_keeps_no_checkpoints(
    secure_kafka: SecureCluster, open_hubs: Open
) -> None:
    hubs = open_hubs(make_hub(secure_kafka), **{"task.checkpoint.system": "hubs"})
    with pytest.raises(ConfigError, match="name a Kafka system or local"):
        hubs.checkpoint_log("checkpoints")
