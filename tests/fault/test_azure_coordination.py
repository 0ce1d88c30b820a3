"""Leadership in Azure Storage when requests and answers are lost, leases are broken, blobs deleted, servers away."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.support.slow_service import check_that_a_grant_counts_from_its_request
from tests.support.tcp_proxy import TcpProxy

from grete.assembly.stop_signals import Requests
from grete.assembly.submission import RunOptions
from grete.azure.blobs import Blobs
from grete.azure.names import escaped
from grete.azure.storage import AzureStorage
from grete.azure.tables import Table
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.settings.azure import account_of
from grete.coordination.azure import AzureCoordination, blob_name
from grete.coordination.base import Coordination, Leadership, campaign_patiently
from grete.coordination.factory import open_coordination
from grete.embedded.leading import Leading
from grete.errors import ConfigError, HeldByOther, LoginRefused, LogUnreachable
from grete.testing.clock import ManualClock
from grete.testing.server_cluster import free_ports
from grete_workbench.azurite import Azurite, AzuriteClock

pytestmark = pytest.mark.fault
TTL_S = 15.0


@pytest.fixture
def clock(azurite: Azurite) -> ManualClock:
    return AzuriteClock(azurite)


@pytest.fixture
def scope() -> str:
    return f"job/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def contender(azurite: Azurite, clock: ManualClock) -> Iterator[Callable[..., AzureCoordination]]:
    with ExitStack() as stack:

        def open_one(connect: str = "") -> AzureCoordination:
            opened = AzureCoordination(account_of(connect or azurite.bootstrap), clock, ttl_s=TTL_S)
            stack.callback(opened.close)
            return opened

        yield open_one


@pytest.fixture
def blobs(azurite: Azurite) -> Iterator[Blobs]:
    """An operator's hand on the account."""
    with closing(AzureStorage(account_of(azurite.bootstrap), timeout_s=5)) as storage:
        yield Blobs(storage, "grete")


@pytest.fixture
def way(azurite: Azurite) -> Iterator[TcpProxy]:
    """To the server's blobs."""
    with TcpProxy(free_ports(1)[0], azurite.nodes[0].blob_port) as opened:
        yield opened


@pytest.fixture
def on_the_way(
    azurite: Azurite, way: TcpProxy, contender: Callable[..., AzureCoordination]
) -> AzureCoordination:
    return contender(azurite.connection(blob_port=way.port))


def test_while_the_service_is_away_a_leadership_is_kept_for_as_long_as_nobody_else_can_be_elected(
    on_the_way: AzureCoordination, way: TcpProxy, clock: ManualClock, scope: str
) -> None:
    granted = on_the_way.campaign(scope)
    way.cut()
    clock.advance(TTL_S * 0.9)  # it may not act any more, and nobody else may lead yet
    assert on_the_way.renew(granted) == granted
    way.restore()
    renewed = on_the_way.renew(granted)
    assert renewed is not None
    assert renewed.valid_until_s > granted.valid_until_s
    way.cut()
    clock.advance(TTL_S)
    assert on_the_way.renew(renewed) is None


@pytest.mark.parametrize("request_", [b"x-ms-lease-action: acquire", b'"holder":{'], ids=["lease", "epoch"])
def test_an_election_whose_answer_is_lost_is_ours_and_has_one_epoch(
    on_the_way: AzureCoordination,
    way: TcpProxy,
    contender: Callable[[], Coordination],
    scope: str,
    request_: bytes,
) -> None:
    onlooker = contender()
    first = onlooker.campaign(scope)
    onlooker.release(first)
    way.lose_answer_to(request_)
    leadership = on_the_way.campaign(scope)
    assert not way.is_losing
    assert leadership.epoch == first.epoch + 1 == onlooker.leading_epoch(scope)
    assert on_the_way.renew(leadership) is not None


def test_a_renewal_whose_answer_is_lost_extends_the_lease_and_not_what_we_may_do(
    on_the_way: AzureCoordination,
    way: TcpProxy,
    contender: Callable[[], Coordination],
    clock: ManualClock,
    scope: str,
) -> None:
    granted = on_the_way.campaign(scope)
    clock.advance(TTL_S / 3)
    way.lose_answer_to(b"x-ms-lease-action: renew")
    assert on_the_way.renew(granted) == granted
    assert not way.is_losing
    clock.advance(TTL_S * 0.8)
    with pytest.raises(HeldByOther):
        contender().campaign(scope)


@pytest.mark.parametrize("what", ["deleted", "broken"])
def test_a_blob_that_is_deleted_or_whose_lease_is_broken_by_hand_ends_the_leadership(
    contender: Callable[[], Coordination], blobs: Blobs, scope: str, what: str
) -> None:
    """And the caller's log keeps the epoch growing."""
    leader, successor = contender(), contender()
    granted = leader.campaign(scope, epoch_floor=9)
    blobs.break_lease(blob_name(scope))
    assert successor.holder(scope) is None
    if what == "deleted":
        found = blobs.read(blob_name(scope))
        assert found is not None
        blobs.delete(blob_name(scope), etag=found.etag)
    assert leader.renew(granted) is None
    assert successor.campaign(scope, epoch_floor=granted.epoch).epoch > granted.epoch
    assert leader.renew(granted) is None
    leader.release(granted)
    assert successor.holder(scope) is not None


def test_a_leader_that_was_paused_beyond_its_lease_cannot_slip_back_in(
    contender: Callable[[], Coordination], clock: ManualClock, scope: str
) -> None:
    """One that nobody has succeeded goes on under its epoch."""
    paused, successor = contender(), contender()
    granted = paused.campaign(scope)
    clock.advance(TTL_S * 5)
    assert successor.is_silent(scope)
    renewed = paused.renew(granted)
    assert renewed is not None
    assert renewed.epoch == granted.epoch
    clock.advance(TTL_S * 5)
    assert successor.campaign(scope).epoch > granted.epoch
    assert paused.renew(renewed) is None


def test_a_holder_that_died_is_waited_out_and_one_that_renews_is_not(
    contender: Callable[[], Coordination], clock: ManualClock, scope: str
) -> None:
    leader = contender()
    died = leader.campaign(scope)
    began_s = clock.monotonic_s()
    leadership = campaign_patiently(contender(), scope, clock)
    assert leadership.epoch > died.epoch
    assert TTL_S / 2 < clock.monotonic_s() - began_s < TTL_S * 1.2  # and what the machine takes meanwhile

    other = contender()
    with pytest.raises(HeldByOther) as first_look:
        other.campaign(scope)
    assert first_look.value.may_be_dead
    for _ in range(4):
        clock.advance(TTL_S / 3)
        assert leader.renew(died) is None
        renewed = contender().renew(leadership)
        assert renewed is not None
    with pytest.raises(HeldByOther) as later_look:
        campaign_patiently(other, scope, clock)
    assert not later_look.value.may_be_dead


def test_the_clocks_of_hosts_count_for_nothing(
    contender: Callable[[], Coordination], clock: ManualClock, scope: str
) -> None:
    leader, other = contender(), contender()
    granted = leader.campaign(scope)
    clock.set_wall(clock.wall_ms() + 86_400_000)
    with pytest.raises(HeldByOther):
        other.campaign(scope)
    renewed = leader.renew(granted)
    assert renewed is not None
    assert renewed.valid_until_s == granted.valid_until_s
    assert not other.is_silent(scope)


def test_while_the_service_is_slow_what_a_leader_may_do_counts_from_its_request(
    azurite: Azurite, way: TcpProxy, scope: str
) -> None:
    clock = SystemClock()
    account = account_of(azurite.connection(blob_port=way.port))
    with closing(AzureCoordination(account, clock, ttl_s=TTL_S)) as leader:
        check_that_a_grant_counts_from_its_request(
            leader, scope, lambda: way.delay(0.3), ttl_s=TTL_S, at_least_s=0.6
        )


def test_a_candidate_that_dies_before_it_is_known_holds_up_the_next_for_its_lease(
    contender: Callable[[], Coordination], blobs: Blobs, clock: ManualClock, scope: str
) -> None:
    first = contender().campaign(scope)
    contender().release(first)
    blobs.acquire(blob_name(scope), str(uuid.uuid4()), 15)
    with pytest.raises(HeldByOther, match="a process that is just being elected") as refused:
        contender().campaign(scope)
    assert refused.value.may_be_dead
    clock.advance(TTL_S)
    assert contender().campaign(scope).epoch == first.epoch + 1


def test_fifty_who_campaign_at_once_have_one_leader(
    contender: Callable[[], Coordination], scope: str
) -> None:
    contenders = [contender() for _ in range(50)]
    with ThreadPoolExecutor(50) as pool:
        campaigns = [pool.submit(own.campaign, scope) for own in contenders]
    refused = [campaign.exception() for campaign in campaigns if campaign.exception() is not None]
    assert len(refused) == 49
    assert all(isinstance(error, HeldByOther) for error in refused)


def test_the_places_in_the_account_are_those_of_the_configuration(
    azurite: Azurite, blobs: Blobs, clock: ManualClock, tmp_path: Path, scope: str
) -> None:
    own = uuid.uuid4().hex[:8]
    config = {"azure.storage.connect": azurite.bootstrap, "job.coordinator.factory": "azure"}
    config |= {"azure.storage.container": f"own-{own}", "azure.storage.table": f"own{own}"}
    with (
        closing(open_coordination(Settings.of(config), tmp_path, clock)) as leader,
        closing(AzureStorage(account_of(azurite.bootstrap), timeout_s=5)) as storage,
    ):
        leader.campaign(scope)
        leader.cells(scope).write("a", b"1", None)
        assert Blobs(storage, f"own-{own}").read(blob_name(scope)) is not None
        assert len(Table(storage, f"own{own}").read_partition(escaped(scope))) == 1
    assert blobs.read(blob_name(scope)) is None


@pytest.mark.parametrize("ttl_s", [14.9, 60.1])
def test_a_lease_that_azure_does_not_give_is_refused(
    azurite: Azurite, clock: ManualClock, ttl_s: float
) -> None:
    with pytest.raises(
        ConfigError, match=r"job\.coordinator\.lease\.ttl\.ms=\d+: leases of blobs.*15000 to 60000"
    ):
        AzureCoordination(account_of(azurite.bootstrap), clock, ttl_s=ttl_s)


def test_a_wrong_key_is_refused_and_named(
    azurite: Azurite, contender: Callable[..., Coordination], scope: str
) -> None:
    wrong = azurite.connection(key=False) + ";AccountKey=d3Jvbmc="
    with pytest.raises(
        LoginRefused, match=r"check the key, signature or identity of azure\.storage\.connect"
    ) as said:
        contender(wrong).campaign(scope)
    assert "d3Jvbmc=" not in str(said.value)


def test_a_coordinator_that_is_let_in_no_more_ends_its_processor(
    azurite: Azurite, contender: Callable[..., Coordination], scope: str
) -> None:
    wrong = azurite.connection(key=False) + ";AccountKey=d3Jvbmc="

    def orders(options: RunOptions, requests: Requests) -> int:
        contender(wrong).cells(scope).write("order", b"", None)
        return 0

    leading = Leading(RunOptions(), lambda: None, orders, pause_s=0)
    leading.start()
    leading.join()
    assert isinstance(leading.error, LoginRefused)


def test_a_coordinator_without_an_answer_stands_by_again_in_the_same_processor(
    on_the_way: AzureCoordination, way: TcpProxy, scope: str
) -> None:
    elected: list[Leadership] = []
    attempts = []

    def leads(options: RunOptions, requests: Requests) -> int:
        attempts.append(options)
        if len(attempts) == 1:
            way.cut()
        else:
            way.restore()
        elected.append(on_the_way.campaign(scope))
        return 0

    leading = Leading(RunOptions(), lambda: None, leads, pause_s=0)
    leading.start()
    leading.join()
    assert (leading.error, len(attempts), len(elected)) == (None, 2, 1)


def test_a_server_that_is_away_for_a_while_keeps_the_leader(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Azurite(tmp_path_factory.mktemp("azurite"))
    server.start()
    clock = ManualClock()
    try:
        with closing(AzureCoordination(account_of(server.bootstrap), clock, ttl_s=TTL_S)) as leader:
            granted = leader.campaign("job/a")
            server.await_saved('"leased"')
            server.stop()
            assert leader.renew(granted) == granted
            with pytest.raises(LogUnreachable, match=r"check the address in azure\.storage\.connect"):
                leader.campaign("job/b")
            server.restart()
            renewed = leader.renew(granted)
            assert renewed is not None
            assert leader.leading_epoch("job/a") == granted.epoch
            server.kill()
            clock.advance(TTL_S)
            assert leader.renew(renewed) is None
    finally:
        server.kill()
