"""Leadership on Kafka when brokers are away and when its topic is lost."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.slow_service import check_that_a_grant_counts_from_its_request
from tests.support.tcp_proxy import TcpProxy

from grete.clock import Clock, SystemClock
from grete.coordination.base import Leadership, campaign_patiently
from grete.coordination.kafka import KafkaCoordination, topic_name
from grete.errors import HeldByOther
from grete.kafka.settings import KafkaLogSettings
from grete.testing.clock import ManualClock
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually

pytestmark = pytest.mark.fault
TTL_S = 12.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scope() -> str:
    return f"job/{uuid.uuid4().hex[:8]}"


def coordination(servers: str, clock: Clock) -> KafkaCoordination:
    settings = KafkaLogSettings({"bootstrap.servers": servers}, replication_factor=1)
    return KafkaCoordination(settings, clock, ttl_s=TTL_S)


@pytest.fixture
def leader(kafka: KafkaCluster, clock: ManualClock) -> Iterator[KafkaCoordination]:
    with closing(coordination(kafka.bootstrap, clock)) as own:
        yield own


def renewed_by(leader: KafkaCoordination, granted: Leadership) -> Leadership:
    """Renewed for later than it was granted: an attempt without an answer in time gives back what there was."""
    for _ in range(11):  # the client comes back within 2 s
        renewed = leader.renew(granted)
        if renewed != granted:
            break
    assert renewed is not None
    assert renewed != granted
    return renewed


def test_while_brokers_are_away_a_leadership_is_kept_for_as_long_as_nobody_else_can_be_elected(
    kafka: KafkaCluster, proxy: TcpProxy, clock: ManualClock, scope: str
) -> None:
    with closing(coordination(f"127.0.0.1:{kafka.nodes[0].proxied_port}", clock)) as leader:
        granted = leader.campaign(scope)
        proxy.cut()
        clock.advance(TTL_S * 0.9)  # it may not act any more, and nobody else may lead yet
        assert leader.renew(granted) == granted
        proxy.restore()
        renewed = renewed_by(leader, granted)
        assert renewed.valid_until_s > granted.valid_until_s
        proxy.cut()
        clock.advance(TTL_S)
        assert leader.renew(renewed) is None


def test_while_brokers_are_slow_what_a_leader_may_do_counts_from_its_request(
    kafka: KafkaCluster, proxy: TcpProxy, scope: str
) -> None:
    clock = SystemClock()
    with closing(coordination(f"127.0.0.1:{kafka.nodes[0].proxied_port}", clock)) as leader:
        check_that_a_grant_counts_from_its_request(
            leader, scope, lambda: proxy.delay(0.1), ttl_s=TTL_S, at_least_s=0.2
        )


@pytest.mark.parametrize("request_", [b"\x00\x18\x00", b"\x00\x1a\x00"], ids=["partitions", "end"])
def test_an_election_and_a_renewal_whose_answers_are_lost_are_made_good(
    kafka: KafkaCluster, proxy: TcpProxy, clock: ManualClock, scope: str, request_: bytes
) -> None:
    """The answers to AddPartitionsToTxn, before anything is written, and to EndTxn, after it."""
    with (
        closing(coordination(f"127.0.0.1:{kafka.nodes[0].proxied_port}", clock)) as leader,
        closing(coordination(kafka.bootstrap, clock)) as other,
    ):
        leader.release(leader.campaign(scope))
        proxy.lose_answer_to(request_)
        won = leader.campaign(scope)
        assert not proxy.is_losing
        assert (won.epoch, other.leading_epoch(scope)) == (2, 2)
        clock.advance(1)
        proxy.lose_answer_to(request_)
        assert renewed_by(leader, won).epoch == 2
        assert not proxy.is_losing


def test_a_renewal_of_a_short_lease_has_as_long_as_the_lease_lasts(
    kafka: KafkaCluster, proxy: TcpProxy, scope: str
) -> None:
    """Its three answers take 1.2 s; given up after a third of a lease of 3 s, the next would have to open the id."""
    settings = KafkaLogSettings(
        {"bootstrap.servers": f"127.0.0.1:{kafka.nodes[0].proxied_port}"}, replication_factor=1
    )
    with closing(KafkaCoordination(settings, SystemClock(), ttl_s=3.0)) as leader:
        leading = leader.renew(leader.campaign(scope))
        assert leading is not None
        proxy.delay(0.2)
        renewed = leader.renew(leading)
    assert renewed is not None
    assert renewed.valid_until_s > leading.valid_until_s


def test_a_topic_that_is_made_meanwhile_does_not_hold_a_renewal_up(
    kafka: KafkaCluster, proxy: TcpProxy, scope: str
) -> None:
    """Making one takes many answers, and on a busy broker longer than a lease; renewing takes a few."""
    with closing(coordination(f"127.0.0.1:{kafka.nodes[0].proxied_port}", SystemClock())) as leader:
        leading = leader.campaign(scope)
        proxy.delay(0.05)
        with ThreadPoolExecutor(1) as pool:
            making = pool.submit(leader.cells, scope)
            renewals = 0
            while not making.done():
                assert leader.renew(leading) is not None
                renewals += not making.done()
        making.result()
    assert renewals >= 2


def test_a_lost_topic_ends_the_leadership_and_the_callers_log_keeps_the_epoch_growing(
    kafka: KafkaCluster, clock: ManualClock, scope: str, leader: KafkaCoordination
) -> None:
    granted = leader.campaign(scope, epoch_floor=9)
    name = topic_name(scope, "__grete_leadership_")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([name])[name].result(60)
    with closing(coordination(kafka.bootstrap, clock)) as successor:
        assert successor.campaign(scope, epoch_floor=granted.epoch).epoch > granted.epoch
    clock.advance(TTL_S)
    assert leader.renew(granted) is None


def test_a_process_that_stands_by_outlives_the_loss_of_the_topic(
    kafka: KafkaCluster, clock: ManualClock, scope: str, leader: KafkaCoordination
) -> None:
    granted = leader.campaign(scope, epoch_floor=9)
    name = topic_name(scope, "__grete_leadership_")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    with closing(coordination(kafka.bootstrap, clock)) as standby:
        with pytest.raises(HeldByOther):
            standby.campaign(scope)
        assert standby.leading_epoch(scope) == granted.epoch
        for _ in range(20):
            renewed = leader.renew(granted)
            assert renewed is not None
        assert not standby.is_silent(scope)
        admin.delete_topics([name])[name].result(60)
        with closing(coordination(kafka.bootstrap, clock)) as other:
            other.release(other.campaign(scope))
        eventually(lambda: standby.leading_epoch(scope) is None, "it reads the new topic")
        assert standby.holder(scope) is None
        assert standby.campaign(scope, epoch_floor=granted.epoch).epoch > granted.epoch


def test_a_holder_that_died_is_waited_out_and_succeeded(
    kafka: KafkaCluster, leader: KafkaCoordination, clock: ManualClock, scope: str
) -> None:
    """Every start looks for the first time: if none waited, a job that was killed could never be started again."""
    died = leader.campaign(scope)
    began_s = clock.monotonic_s()
    with closing(coordination(kafka.bootstrap, clock)) as other:
        assert campaign_patiently(other, scope, clock).epoch > died.epoch
    assert TTL_S <= clock.monotonic_s() - began_s < TTL_S * 1.2


def test_a_holder_that_renews_is_not_waited_for(
    kafka: KafkaCluster, leader: KafkaCoordination, clock: ManualClock, scope: str
) -> None:
    granted = leader.campaign(scope)
    with closing(coordination(kafka.bootstrap, clock)) as other:
        with pytest.raises(HeldByOther) as first_look:
            other.campaign(scope)
        assert first_look.value.may_be_dead
        clock.advance(TTL_S / 6)
        renewed_by(leader, granted)
        with pytest.raises(HeldByOther) as second_look:
            campaign_patiently(other, scope, clock)
        assert not second_look.value.may_be_dead
