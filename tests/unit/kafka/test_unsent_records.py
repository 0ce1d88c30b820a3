"""Records that a client of Kafka neither sends nor gives up: whoever waits for them goes on all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from grete.kafka.library import KafkaError, KafkaException, Producer
from grete.kafka.producer import NotWritten, TransactionalProducer
from grete.model.fence import Fence
from grete.systems.kafka.transaction import GroupTransactions
from grete.testing.clock import ManualClock


class StuckClient:
    """librdkafka's producer as it was seen: a record stays in its queue whatever happens."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.state = KafkaError(KafkaError._STATE, "Operation not valid in state InTransaction")

    def init_transactions(self, _: float) -> None:
        """Answered at once."""

    def begin_transaction(self) -> None:
        if self._is_begun:
            raise KafkaException(self.state)
        self._is_begun = True

    _is_begun = False

    def flush(self, timeout_s: float) -> int:
        self._clock.advance(timeout_s)
        return 1

    def abort_transaction(self, _: float) -> None:
        self._is_begun = False


def opened(transactions: TransactionalProducer) -> TransactionalProducer:
    TransactionalProducer.open(transactions, 10.0)
    transactions.begin()
    return transactions


def stuck(clock: ManualClock) -> tuple[StuckClient, Callable[[], Producer]]:
    client = StuckClient(clock)
    return client, lambda: cast(Producer, client)


def test_records_that_stay_in_the_clients_queue_are_waited_for_up_to_the_deadline() -> None:
    clock = ManualClock()
    producer = opened(TransactionalProducer(stuck(clock)[1], clock))
    with pytest.raises(
        NotWritten, match=r"did not take 1 records of a transaction in time; check that"
    ) as late:
        producer.settle(30.0)
    assert clock.monotonic_s() == pytest.approx(30.0, abs=2)
    assert not late.value.is_final


def test_records_of_a_transaction_that_is_lost_are_not_waited_for() -> None:
    clock = ManualClock()
    client, make = stuck(clock)
    producer = opened(TransactionalProducer(make, clock))
    client.state = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    with pytest.raises(NotWritten, match="MSG_SIZE_TOO_LARGE") as refused:
        producer.settle(120.0)
    assert clock.monotonic_s() < 2
    assert refused.value.is_final


def test_the_transaction_of_a_slot_waits_for_its_records_twice_as_long_as_brokers_keep_it_open() -> None:
    clock, nothing = ManualClock(), cast(Any, None)
    fences = {Fence("container/job/1", 1): nothing}
    slot = GroupTransactions(nothing, "id", fences, nothing, lambda: (), clock, 15.0, {})
    slot._make = stuck(clock)[1]
    opened(slot)
    with pytest.raises(NotWritten):
        slot.settle(120.0)
    assert clock.monotonic_s() == pytest.approx(30.0, abs=2)
    slot.abort(120.0)
    assert slot.has_timed_out, "less is sent the next time"
