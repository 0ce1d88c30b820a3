"""ZooKeeper servers that ask who comes, and show a certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.certificates import make_authority
from tests.support.secure_zookeeper import SecureZooKeeper

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.zookeeper.election import ZooKeeperCoordination
from grete.coordination.zookeeper.settings import zookeeper_settings
from grete.errors import CoordinationUnreachable, GreteError, LoginRefused

pytestmark = pytest.mark.fault
TTL_S = 10.0
ZK = "job.coordinator.zk."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    directory = tmp_path_factory.mktemp("secure-zookeeper")
    made = SecureZooKeeper(
        directory / "server",
        make_authority(directory / "authority"),
        {"ann": "wonder;land", "bob": "builder"},
    )
    made.start()
    yield made
    made.stop()


@pytest.fixture
def ann(server: SecureZooKeeper, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "secret").write_text("wonder;land\n")
    return {
        f"{ZK}connect": f"{server.secure}/jobs",
        f"{ZK}connection.timeout.ms": "2000",
        f"{ZK}ssl.enabled": "true",
        f"{ZK}ssl.truststore.location": str(server.authority.ca_pem),
        f"{ZK}sasl.mechanism": "DIGEST-MD5",
        f"{ZK}user": "ann",
        f"{ZK}password": f"${{file:{tmp_path / 'secret'}}}",
    }


def coordination(config: Mapping[str, str]) -> ZooKeeperCoordination:
    return ZooKeeperCoordination(
        zookeeper_settings(Settings.of(config).zookeeper, ttl_s=TTL_S), SystemClock(), ttl_s=TTL_S
    )


def test_a_user_leads_through_tls_and_owns_what_it_makes(ann: dict[str, str]) -> None:
    bob = {**ann, f"{ZK}user": "bob", f"{ZK}password": "builder"}
    with closing(coordination(ann)) as hers, closing(coordination(bob)) as his:
        leading = hers.campaign("job/a")
        with pytest.raises(LoginRefused, match=r"job\.coordinator\.zk\.user"):
            his.campaign("job/a", take_over=True)
        assert hers.renew(leading) is not None


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({f"{ZK}password": "wrong"}, LoginRefused, r"job\.coordinator\.zk\.password"),
        ({f"{ZK}connect": "localhost"}, LoginRefused, "Hostname mismatch"),
        ({f"{ZK}ssl.truststore.location": ""}, LoginRefused, "certificate verify failed"),
        ({f"{ZK}ssl.enabled": "false"}, CoordinationUnreachable, r"answered within 2 s \(Connection"),
    ],
)
def test_what_does_not_fit_is_named_with_the_key_to_look_at(
    server: SecureZooKeeper, ann: dict[str, str], changes: dict[str, str], error: type[GreteError], says: str
) -> None:
    changed = {**ann, **changes}
    if changed[f"{ZK}connect"] == "localhost":
        changed[f"{ZK}connect"] = server.secure.replace("127.0.0.1", "localhost")
    with closing(coordination(changed)) as refused, pytest.raises(error, match=says):
        refused.campaign("job/b")
