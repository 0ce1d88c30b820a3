"""Logs of clients while brokers are away: one line, and one when they are back."""

from __future__ import annotations

import logging

import pytest

from grete.errors import LoginRefused
from grete.kafka.errors import is_temporary
from grete.kafka.library import KafkaError, KafkaException
from grete.kafka.login import SettingsOrigin
from grete.kafka.outage import BrokerLog, broker_log
from grete.kafka.refusal import Refusals
from grete.kafka.topics import TopicSettings, too_few_brokers
from grete.testing.clock import ManualClock


def test_an_outage_is_one_line_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = BrokerLog("a:9092", now_s=clock.monotonic_s)
    with caplog.at_level(logging.INFO):
        for _ in range(500):
            log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "Connection refused")
            clock.advance(0.1)
        log.answered()  # of another broker, between two complaints
        clock.advance(6)
        log.answered()
        log.answered()
    assert [record.getMessage() for record in caplog.records] == [
        "trouble with the brokers a:9092; one line when it is over: FAIL [rdkafka#producer-1] Connection refused",
        "the brokers a:9092 answer again",
    ]


def test_a_second_outage_is_logged_like_the_first(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = BrokerLog("a:9092", now_s=clock.monotonic_s)
    for _ in range(2):
        log.log(logging.ERROR, "gone")
        clock.advance(6)
        log.answered()
    assert len(caplog.records) == 4


def test_all_clients_of_the_same_brokers_share_one() -> None:
    assert broker_log("b:9092") is broker_log("b:9092")
    assert broker_log("b:9092") is not broker_log("c:9092")


def test_brokers_that_have_refused_three_times_are_reported_whatever_was_remarked_since() -> None:
    """The client goes on trying: its next connection fails in other words before anything has looked."""
    refusals = Refusals(SettingsOrigin("kafka"))
    for _ in range(3):
        refusals.check()
        refusals.note(KafkaError(KafkaError._SSL, "certificate verify failed"))
    refusals.note(KafkaError(KafkaError._TRANSPORT, "SSL handshake failed"))
    with pytest.raises(LoginRefused, match=r"No trust.*systems\.kafka\.producer\.bootstrap\.servers"):
        refusals.check()


def test_a_broker_that_has_just_started_is_asked_again_and_one_that_is_too_few_is_not() -> None:
    """Both answer with one code."""

    def refusal(said: str) -> KafkaError:
        return KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition: {said}")

    settings = TopicSettings(3, "job.coordinator.replication.factor", {})
    starting = refusal("All brokers are currently fenced, or have all their log directories cordoned.")
    alone = refusal(
        "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered."
    )
    assert is_temporary(starting)
    assert too_few_brokers(KafkaException(starting), "log", settings) is None
    assert not is_temporary(alone)
    assert "cannot have 3 copies" in (too_few_brokers(KafkaException(alone), "log", settings) or "")
