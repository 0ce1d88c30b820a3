"""A value on Kafka that several processes change in turns."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from grete.clock import SystemClock
from grete.errors import HeldByOther, LogCorrupted
from grete.kafka.settings import KafkaLogSettings
from grete.keyed_log.kafka_register import KafkaRegister
from grete.testing.kafka_broker import KafkaCluster

pytestmark = pytest.mark.fault
_WITHIN_S = 20.0


@pytest.fixture
def registers(kafka: KafkaCluster) -> Iterator[tuple[KafkaRegister, KafkaRegister]]:
    """Of two processes, for the same value."""
    settings, name = (
        KafkaLogSettings({"bootstrap.servers": kafka.bootstrap}, replication_factor=1),
        uuid.uuid4().hex,
    )
    with (
        closing(KafkaRegister(name, settings, SystemClock())) as one,
        closing(KafkaRegister(name, settings, SystemClock())) as other,
    ):
        yield one, other


def test_what_was_refused_is_decided_next_time_by_what_others_have_written_since(
    registers: tuple[KafkaRegister, KafkaRegister],
) -> None:
    """Else a contender that was refused amid its campaign would take a leader for what it was then, for ever."""
    one, other = registers
    seen: list[bytes | None] = []

    def refuse_at_the_second_look(value: bytes | None) -> bytes | None:
        seen.append(value)
        if len(seen) == 1:
            return b"wanted"
        raise HeldByOther("a scope", "another process")

    with pytest.raises(HeldByOther):
        one.change(refuse_at_the_second_look, _WITHIN_S)
    other.change(lambda value: b"later", _WITHIN_S)
    assert one.read(is_settled=True) == b"later"
    one.change(lambda value: seen.append(value), _WITHIN_S)  # None changes nothing
    assert seen == [None, None, b"later"]


def test_who_has_written_and_read_nothing_since_notices_that_the_topic_was_recreated(
    kafka: KafkaCluster,
) -> None:
    """Else the first leader of a scope went on under an epoch that somebody had deleted."""
    settings, name = (
        KafkaLogSettings({"bootstrap.servers": kafka.bootstrap}, replication_factor=1),
        uuid.uuid4().hex,
    )
    with closing(KafkaRegister(name, settings, SystemClock())) as first:
        for value in (b"1", b"2", b"3"):
            first.change(lambda _, value=value: value, _WITHIN_S)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([name])[name].result(60)
        with closing(KafkaRegister(name, settings, SystemClock())) as recreated:
            with pytest.raises(LogCorrupted, match="recreated"):
                first.change(lambda _: b"4", _WITHIN_S)
            assert recreated.read(is_settled=True) is None
