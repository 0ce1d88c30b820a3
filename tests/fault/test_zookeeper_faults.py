"""Leadership on ZooKeeper when clients are cut off or paused, nodes are deleted, servers die."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kazoo.security import make_acl, make_digest_acl
from tests.support.slow_service import check_that_a_grant_counts_from_its_request
from tests.support.tcp_proxy import TcpProxy

from grete.clock import SystemClock
from grete.coordination.base import Leadership
from grete.coordination.zookeeper.election import ZooKeeperCoordination
from grete.coordination.zookeeper.library import KazooClient
from grete.coordination.zookeeper.settings import ZooKeeperSettings
from grete.errors import CoordinationUnreachable, HeldByOther, LoginRefused
from grete.testing.clock import ManualClock
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually, patient
from grete_workbench.zookeeper_server import ZooKeeperCluster

pytestmark = pytest.mark.fault
TTL_S = 3.0
SCOPE = "job/one"
_PATIENT = {"max_tries": -1}


@pytest.fixture
def path() -> str:
    return f"/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def way(zookeeper: ZooKeeperCluster) -> Iterator[TcpProxy]:
    with TcpProxy(free_ports(1)[0], zookeeper.nodes[0].client_port) as opened:
        yield opened


def contender(servers: str, *, session_s: float = TTL_S, connect_s: float = 20.0) -> ZooKeeperCoordination:
    settings = ZooKeeperSettings(servers, session_s, connect_s)
    return ZooKeeperCoordination(settings, SystemClock(), ttl_s=TTL_S)


@pytest.fixture
def onlooker(zookeeper: ZooKeeperCluster, path: str) -> Iterator[ZooKeeperCoordination]:
    with closing(contender(zookeeper.bootstrap + path)) as own:
        yield own


@pytest.fixture
def leader(way: TcpProxy, path: str) -> Iterator[ZooKeeperCoordination]:
    """Behind the way."""
    with closing(contender(f"127.0.0.1:{way.port}{path}")) as own:
        yield own
        way.restore()


@pytest.fixture
def by_hand(zookeeper: ZooKeeperCluster, path: str) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.bootstrap)
    client.start()
    client.chroot = path
    yield client
    client.stop()
    client.close()


def is_free(onlooker: ZooKeeperCoordination) -> bool:
    """Whether nobody leads; not known while a busy server does not answer in time."""
    try:
        return onlooker.holder(SCOPE) is None
    except CoordinationUnreachable:
        return False


def test_one_that_is_cut_off_is_succeeded_and_may_not_act_by_then(
    leader: ZooKeeperCoordination, onlooker: ZooKeeperCoordination, way: TcpProxy
) -> None:
    first = leader.campaign(SCOPE)
    way.cut()
    eventually(lambda: is_free(onlooker), "the session ends")
    assert SystemClock().monotonic_s() > first.valid_until_s
    second = onlooker.campaign(SCOPE)
    assert second.epoch > first.epoch
    assert leader.renew(first) is None
    way.restore()
    assert leader.renew(first) is None
    assert onlooker.renew(second) is not None


def test_while_the_servers_are_away_a_leadership_lasts_as_long_as_it_was_granted_and_goes_on_after(
    leader: ZooKeeperCoordination, way: TcpProxy
) -> None:
    granted = leader.campaign(SCOPE)
    way.cut()
    assert leader.renew(granted) == granted
    way.restore()
    eventually(lambda: leader.renew(granted) != granted, "the client comes back", within_s=TTL_S)
    renewed = leader.renew(granted)
    assert renewed is not None
    assert renewed.valid_until_s > granted.valid_until_s


def test_an_answer_that_comes_late_keeps_a_leadership_for_as_long_as_nobody_else_can_be_elected(
    way: TcpProxy, path: str
) -> None:
    """A server that wrote its log for 1.96 s cost a leadership with a lease of 3 s."""
    clock = ManualClock()
    settings = ZooKeeperSettings(f"127.0.0.1:{way.port}{path}", 60, 20)
    with closing(ZooKeeperCoordination(settings, clock, ttl_s=TTL_S)) as leader:
        granted = leader.campaign(SCOPE)
        way.cut()
        clock.advance(TTL_S * 0.9)
        assert leader.renew(granted) == granted
        way.restore()
        eventually(lambda: leader.renew(granted) not in (None, granted), "it is renewed")
        renewed = leader.renew(granted)
        assert renewed is not None
        assert (renewed.epoch, renewed.valid_until_s) == (granted.epoch, clock.monotonic_s() + TTL_S * 2 / 3)
        way.cut()
        clock.advance(TTL_S)
        assert leader.renew(renewed) is None


def test_while_servers_are_slow_what_a_leader_may_do_counts_from_its_request(
    leader: ZooKeeperCoordination, way: TcpProxy
) -> None:
    check_that_a_grant_counts_from_its_request(
        leader, SCOPE, lambda: way.delay(0.1), ttl_s=TTL_S, at_least_s=0.2
    )


def test_an_election_whose_answer_is_lost_is_known_for_won(
    leader: ZooKeeperCoordination, onlooker: ZooKeeperCoordination, way: TcpProxy
) -> None:
    """The transaction arrives, its answer does not: the next attempt finds its own node and makes no second one."""
    leader.release(leader.campaign(SCOPE))
    way.lose_answer_to(b"since_ms")
    won = leader.campaign(SCOPE)
    assert not way.is_losing
    assert onlooker.leading_epoch(SCOPE) == won.epoch
    assert leader.renew(won) is not None


def test_a_renewal_whose_answer_is_lost_is_made_good_by_the_next(
    leader: ZooKeeperCoordination, way: TcpProxy
) -> None:
    granted = leader.campaign(SCOPE)
    way.lose_answer_to(b"since_ms")
    assert leader.renew(granted) == granted
    eventually(lambda: leader.renew(granted) not in (None, granted), "it is renewed", within_s=TTL_S)


@pytest.mark.parametrize("what", ["holder", "election", "all"])
def test_nodes_that_are_deleted_by_hand_end_the_leadership_and_epochs_go_on_growing(
    leader: ZooKeeperCoordination, onlooker: ZooKeeperCoordination, by_hand: KazooClient, what: str
) -> None:
    """Without any log that remembers the epoch."""
    for _ in range(5):
        leader.release(leader.campaign(SCOPE))
    first = leader.campaign(SCOPE, epoch_floor=70)
    [scope] = by_hand.get_children("/grete/leaderships")
    election = f"/grete/leaderships/{scope}"
    paths = {"holder": f"{election}/{first.incarnation}", "election": election, "all": "/grete"}
    by_hand.delete(paths[what], recursive=True)
    second = onlooker.campaign(SCOPE)
    assert second.epoch > (first.epoch if what == "holder" else 0)
    assert leader.renew(first) is None
    assert onlooker.renew(second) is not None


def test_an_election_of_new_nodes_is_above_all_epochs_before(
    leader: ZooKeeperCoordination, by_hand: KazooClient
) -> None:
    epochs = []
    for _ in range(3):
        for _ in range(4):
            won = leader.campaign(SCOPE, take_over=True)
            epochs.append(won.epoch)
        by_hand.delete("/grete", recursive=True)
    assert epochs == sorted(set(epochs))


def test_a_session_that_expired_while_the_process_stood_still_ends_the_leadership(
    zookeeper: ZooKeeperCluster, path: str, onlooker: ZooKeeperCoordination
) -> None:
    """Ended by the servers, as after a pause: the client goes on under a new session without a word."""
    with closing(contender(zookeeper.bootstrap + path)) as leader:
        first = leader.campaign(SCOPE)
        session = leader._client._opened()
        twin = KazooClient(zookeeper.bootstrap, client_id=session.client_id, connection_retry=_PATIENT)
        twin.start()
        twin.stop()
        twin.close()
        eventually(lambda: is_free(onlooker), "its node is gone")
        assert leader.renew(first) is None
        eventually(lambda: leader.holder(SCOPE) is None, "it goes on under a new session")
        assert leader.campaign(SCOPE).epoch > first.epoch


def test_servers_that_keep_sessions_for_less_shorten_the_right_to_act(
    zookeeper: ZooKeeperCluster, path: str
) -> None:
    """Granted is what counts, not what was asked for."""
    asked = ZooKeeperSettings(zookeeper.bootstrap + path, session_s=600.0)
    with closing(ZooKeeperCoordination(asked, SystemClock(), ttl_s=600.0)) as leader:
        before_s = SystemClock().monotonic_s()
        assert leader.campaign(SCOPE).valid_until_s <= before_s + 60 * 2 / 3 + 5


def test_of_fifty_who_start_at_once_one_leads(zookeeper: ZooKeeperCluster, path: str) -> None:
    won, refused = [], []
    start = threading.Barrier(50)

    def campaign() -> None:
        with closing(contender(zookeeper.bootstrap + path, session_s=20.0)) as own:
            start.wait()
            try:
                won.append(own.campaign(SCOPE))
            except HeldByOther as error:
                refused.append(error)
            start.wait()

    threads = [threading.Thread(target=campaign) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 49)


def test_an_ensemble_that_loses_its_leader_costs_no_leadership(
    zookeepers: ZooKeeperCluster, path: str
) -> None:
    with closing(contender(zookeepers.bootstrap + path, session_s=10.0)) as one:
        granted = one.campaign(SCOPE)
        dying = zookeepers.leader()
        assert dying is not None
        zookeepers.kill(dying)
        eventually(lambda: one.renew(granted) not in (None, granted), "renewed by the others")
        with closing(contender(zookeepers.bootstrap + path)) as two, pytest.raises(HeldByOther):
            two.campaign(SCOPE)


def test_servers_that_are_not_there_are_said_to_be(path: str) -> None:
    with (
        closing(contender(f"127.0.0.1:{free_ports(1)[0]}{path}", connect_s=0.5)) as one,
        pytest.raises(CoordinationUnreachable, match=r"no ZooKeeper server of 127.* answered within 0\.5 s"),
    ):
        one.campaign(SCOPE)


def test_nodes_of_a_user_are_kept_from_others(zookeeper: ZooKeeperCluster, path: str) -> None:
    def of(user: str) -> ZooKeeperCoordination:
        login = {"auth_data": [("digest", f"{user}:secret")]}
        settings = ZooKeeperSettings(zookeeper.bootstrap + path, TTL_S, is_owned=True, client=login)
        return ZooKeeperCoordination(settings, SystemClock(), ttl_s=TTL_S)

    with closing(of("ann")) as ann, closing(of("bob")) as bob:
        leading = ann.campaign(SCOPE)
        with pytest.raises(LoginRefused, match=r"job\.coordinator\.zk\.user"):
            bob.campaign(SCOPE, take_over=True)
        assert ann.renew(leading) is not None


@pytest.mark.parametrize(
    "pause", [0.5, 1.5, *(pytest.param(p, marks=pytest.mark.nightly) for p in (3.0, 5.0))]
)
def test_one_that_stood_still_acts_no_more_once_another_was_elected(
    zookeeper: ZooKeeperCluster, path: str, tmp_path: Path, onlooker: ZooKeeperCoordination, pause: float
) -> None:
    """For parts and multiples of its lease, by the one clock that both have."""
    acts = tmp_path / "acts"
    words = [zookeeper.bootstrap + path, SCOPE, str(TTL_S), str(acts)]
    leader = subprocess.Popen([sys.executable, "-m", "tests.support.leading_process", *words])
    try:
        eventually(lambda: len(lines(acts)) > 20, "it acts")
        first = onlooker.leading_epoch(SCOPE)
        leader.send_signal(signal.SIGSTOP)
        resume_s = time.monotonic() + pause * TTL_S
        elected_s, second = elected_until(onlooker, resume_s)
        time.sleep(max(0.0, resume_s - time.monotonic()))
        before = len(lines(acts))
        leader.send_signal(signal.SIGCONT)
        if pause < 1:
            assert second is None
            eventually(lambda: len(lines(acts)) > before + 20, "it goes on")
            assert onlooker.leading_epoch(SCOPE) == first
        else:
            assert second is not None
            assert leader.wait(patient(30)) == 0
            *acted, last = lines(acts)
            assert last == "lost"
            assert {line.split()[0] for line in acted} == {str(first)}
            assert max(float(line.split()[1]) for line in acted) < elected_s
            assert second.epoch > (first or 0)
    finally:
        leader.kill()
        leader.wait()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def elected_until(contender: ZooKeeperCoordination, until_s: float) -> tuple[float, Leadership | None]:
    """The leadership that was won by then, and the moment before it was asked for."""
    while time.monotonic() < until_s:
        asked_s = time.monotonic()
        with contextlib.suppress(HeldByOther):
            return asked_s, contender.campaign(SCOPE)
        time.sleep(0.02)
    return until_s, None


def test_rights_to_read_alone_are_refused_at_once(zookeeper: ZooKeeperCluster, path: str) -> None:
    """A transaction that is not allowed is no election that others were faster in."""
    login = ("digest", "ann:secret")
    hers = ZooKeeperSettings(zookeeper.bootstrap + path, TTL_S, is_owned=True, client={"auth_data": [login]})
    with closing(ZooKeeperCoordination(hers, SystemClock(), ttl_s=TTL_S)) as ann:
        ann.release(ann.campaign(SCOPE))
        cell = ann.cells(SCOPE).write("a", b"1", None)
    rights = [make_digest_acl("ann", "secret", all=True), make_acl("world", "anyone", read=True)]
    by_hand = KazooClient(zookeeper.bootstrap, auth_data=[login])
    by_hand.start()
    for root in ("leaderships", "cells"):
        [scope] = by_hand.get_children(f"{path}/grete/{root}")
        by_hand.set_acls(f"{path}/grete/{root}/{scope}", rights)
    by_hand.set_acls(f"{path}/grete/cells/{scope}/a", rights)
    by_hand.stop()
    by_hand.close()
    with closing(contender(zookeeper.bootstrap + path)) as other:
        with pytest.raises(LoginRefused):
            other.campaign(SCOPE)
        with pytest.raises(LoginRefused):
            other.cells(SCOPE).write("a", b"2", cell.version)
