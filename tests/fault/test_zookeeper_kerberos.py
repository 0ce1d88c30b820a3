"""ZooKeeper servers that ask for tickets of Kerberos, with a KDC of our own: `SERVICES=kerberos make services`."""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.fault.copying_job import CopyingJob
from tests.support.kerberos import MODULE, REALM, Kerberos
from tests.support.secure_zookeeper import TicketZooKeeper
from tests.support.tcp_proxy import TcpProxy

from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.base import Leadership
from grete.coordination.zookeeper.client import ZooKeeperClient
from grete.coordination.zookeeper.election import ZooKeeperCoordination
from grete.coordination.zookeeper.settings import zookeeper_settings
from grete.errors import CoordinationUnreachable, LoginRefused
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.nightly]
TTL_S = 10.0
ZK = "job.coordinator.zk."


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberos]:
    made = Kerberos(tmp_path_factory.mktemp("kerberos"))
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def server(realm: Kerberos, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketZooKeeper]:
    made = TicketZooKeeper(tmp_path_factory.mktemp("zookeeper-by-tickets"), realm)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def keytabs(realm: Kerberos) -> dict[str, Path]:
    return {name: realm.add(name) for name in ("ann", "bob")}


@pytest.fixture
def way(server: TicketZooKeeper) -> Iterator[TcpProxy]:
    with TcpProxy(free_ports(1)[0], server.nodes[0].client_port) as opened:
        yield opened


@pytest.fixture
def cache(realm: Kerberos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tickets are looked for, by this process and those that it starts. There are none."""
    monkeypatch.setenv("KRB5_CONFIG", str(realm.configuration))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(tmp_path / "no.keytab"))
    monkeypatch.setenv("PYTHONPATH", str(MODULE), prepend=":")
    monkeypatch.syspath_prepend(str(MODULE))
    importlib.reload(importlib.import_module("puresasl.mechanisms"))  # it has looked for the module already
    return tmp_path / "tickets"


@pytest.fixture
def settings(way: TcpProxy, cache: Path) -> dict[str, str]:
    return {
        "job.coordinator.factory": "zookeeper",
        f"{ZK}connect": f"localhost:{way.port}/{uuid.uuid4().hex[:8]}",
        f"{ZK}connection.timeout.ms": "3000",
        f"{ZK}sasl.mechanism": "GSSAPI",
    }


def coordination(settings: dict[str, str]) -> ZooKeeperCoordination:
    return ZooKeeperCoordination(
        zookeeper_settings(Settings.of(settings).zookeeper, ttl_s=TTL_S), SystemClock(), ttl_s=TTL_S
    )


def test_a_job_is_led_by_the_principal_of_a_keytab_which_owns_what_it_makes(
    settings: dict[str, str],
    keytabs: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytabs["ann"]))
    job = CopyingJob(tmp_path, settings)
    try:
        process, epoch = job.copying()
        assert main(["leader", "show", "--job", job.id.name]) == 0
        assert str(epoch) in capsys.readouterr().out
        with closing(
            ZooKeeperClient(zookeeper_settings(Settings.of(settings).zookeeper, ttl_s=TTL_S))
        ) as client:
            [(acls, _)] = client.ask(lambda session: [session.get_acls_async("/grete")], TTL_S)
        assert [(acl.id.scheme, acl.id.id) for acl in acls] == [("sasl", f"ann@{REALM}")]
        job.stop()
        assert process.wait(patient(30)) == 0
    finally:
        job.end()


def test_nodes_of_one_principal_are_not_written_by_another(
    settings: dict[str, str], keytabs: dict[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytabs["ann"]))
    with closing(coordination(settings)) as hers:
        leading = hers.campaign("job/a")
        cache.unlink()
        monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytabs["bob"]))
        with closing(coordination(settings)) as his, pytest.raises(LoginRefused, match="rights of the path"):
            his.campaign("job/a", take_over=True)
        assert hers.renew(leading) is not None


def test_without_a_ticket_the_start_says_so_at_once_with_the_way_out(settings: dict[str, str]) -> None:
    began_s = time.monotonic()
    with closing(coordination(settings)) as refused, pytest.raises(LoginRefused) as caught:
        refused.campaign("job/a")
    assert "No Kerberos credentials available" in str(caught.value)
    assert "KRB5_CLIENT_KTNAME" in str(caught.value)
    assert time.monotonic() - began_s < patient(2)


def test_a_server_that_the_realm_does_not_know_is_named(
    settings: dict[str, str], keytabs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytabs["ann"]))
    elsewhere = {**settings, f"{ZK}connect": settings[f"{ZK}connect"].replace("localhost", "127.0.0.1")}
    with (
        closing(coordination(elsewhere)) as refused,
        pytest.raises(LoginRefused, match=r"zookeeper/127\.0\.0\.1"),
    ):
        refused.campaign("job/a")


def test_a_leader_outlives_its_ticket_until_it_has_to_connect_again(
    settings: dict[str, str], realm: Kerberos, keytabs: dict[str, Path], cache: Path, way: TcpProxy
) -> None:
    """And goes on with another ticket, as a user's kinit leaves it."""
    realm.fetch_ticket("ann", keytabs["ann"], cache, lifetime_s=2)
    with closing(coordination(settings)) as ours:
        leading = ours.campaign("job/a")
        time.sleep(3)  # the ticket's end
        assert _is_longer(ours.renew(leading), leading)

        way.cut()
        way.restore()
        with pytest.raises(LoginRefused, match="Ticket expired"):
            eventually(lambda: ours.look("job/b") is None, "the connection is known to be lost")
        realm.fetch_ticket("ann", keytabs["ann"], cache, lifetime_s=60)
        assert ours.holder("job/a") is not None


def test_a_keytab_brings_another_ticket_for_one_that_has_expired(
    settings: dict[str, str], realm: Kerberos, way: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(realm.add("brief", lifetime_s=2)))
    with closing(coordination(settings)) as ours:
        leading = ours.campaign("job/a")
        time.sleep(3)  # the ticket's end
        way.cut()
        way.restore()
        eventually(lambda: _is_longer(ours.renew(leading), leading), "it has logged in again")


def _is_longer(renewed: Leadership | None, before: Leadership) -> bool:
    return renewed is not None and renewed.valid_until_s > before.valid_until_s


def test_a_kdc_that_is_away_is_waited_for(
    settings: dict[str, str], realm: Kerberos, keytabs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytabs["ann"]))
    realm.kill()
    try:
        with closing(coordination(settings)) as ours:
            with pytest.raises(CoordinationUnreachable, match="Cannot contact any KDC"):
                ours.holder("job/a")
            realm.restart()
            assert ours.campaign("job/a").epoch
    finally:
        realm.ensure_running()
