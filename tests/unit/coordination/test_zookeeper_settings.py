"""Settings of ZooKeeper: what is missing is said at once, and secrets are resolved by the process that connects."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.coordination.zookeeper import tickets
from grete.coordination.zookeeper.paths import node_name, text_of
from grete.coordination.zookeeper.settings import zookeeper_settings
from grete.errors import ConfigError

JOB = {
    "job.name": "j",
    "task.class": "a:B",
    "task.inputs": "local.in",
    "job.coordinator.factory": "org.apache.samza.zk.ZkJobCoordinatorFactory",
    "job.coordinator.zk.connect": "zk1:2181,zk2:2181/jobs",
}


def test_a_session_lasts_as_long_as_the_lease_unless_samzas_key_says_otherwise() -> None:
    assert zookeeper_settings(Settings.of(JOB).zookeeper, ttl_s=15).session_s == 15
    longer = {**JOB, "job.coordinator.zk.session.timeout.ms": "30000"}
    assert zookeeper_settings(Settings.of(longer).zookeeper, ttl_s=15).session_s == 30
    assert zookeeper_settings(Settings.of(JOB).zookeeper, ttl_s=15).connect_s == 60


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"job.coordinator.zk.connect": ""}, "Missing job.coordinator.zk.connect configuration"),
        (
            {"job.coordinator.zk.user": "ann"},
            "needs both job.coordinator.zk.user and job.coordinator.zk.password",
        ),
        ({"job.coordinator.zk.sasl.mechanism": "DIGEST-MD5"}, "needs job.coordinator.zk.user"),
        ({"job.coordinator.zk.sasl.mechanism": "PLAIN"}, "none of DIGEST-MD5, GSSAPI"),
        (
            {"job.coordinator.zk.sasl.mechanism": "GSSAPI", "job.coordinator.zk.user": "ann"},
            "takes the user of the process's tickets: remove job.coordinator.zk.user",
        ),
    ],
)
def test_what_is_missing_is_said_before_anything_is_written(changes: dict[str, str], says: str) -> None:
    assert check(JOB).errors == ()
    assert any(says in error for error in check({**JOB, **changes}).errors)
    with pytest.raises(ConfigError, match=says):
        zookeeper_settings(Settings.of({**JOB, **changes}).zookeeper, ttl_s=15)


def test_a_login_is_resolved_when_a_client_is_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a:b c\n")
    given = {
        **JOB,
        "job.coordinator.zk.user": "ann",
        "job.coordinator.zk.password": f"${{file:{secret}}}",
    }
    settings = zookeeper_settings(Settings.of(given).zookeeper, ttl_s=15)
    assert settings.client == {"auth_data": [("digest", "ann:a:b c")]}
    assert settings.is_owned
    assert "b c" not in repr(settings)
    by_sasl = {**given, "job.coordinator.zk.sasl.mechanism": "digest-md5"}
    assert (
        zookeeper_settings(Settings.of(by_sasl).zookeeper, ttl_s=15).client["sasl_options"]["mechanism"]
        == "DIGEST-MD5"
    )


def test_tickets_need_a_module_that_has_an_extra_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    by_ticket = {**JOB, "job.coordinator.zk.sasl.mechanism": "GSSAPI"}
    monkeypatch.setitem(sys.modules, "kerberos", None)
    with pytest.raises(
        ConfigError, match=r"pip install 'grete\[kerberos\]'.*Or log in by job\.coordinator\.zk\.user"
    ):
        zookeeper_settings(Settings.of(by_ticket).zookeeper, ttl_s=15)
    kerberos = ModuleType("kerberos")
    kerberos.__spec__ = ModuleSpec("kerberos", None)
    monkeypatch.setitem(sys.modules, "kerberos", kerberos)
    settings = zookeeper_settings(Settings.of(by_ticket).zookeeper, ttl_s=15)
    assert settings.client == {"sasl_options": {"mechanism": "GSSAPI"}}
    assert settings.is_owned


def test_what_kerberos_says_is_told_with_the_way_out_and_a_kdc_that_is_away_passes() -> None:
    general = ("Unspecified GSS failure.  Minor code may provide more information", 851968)
    expired = Exception(general, ("Ticket expired", -1765328352))
    assert str(tickets.said(expired)).startswith("Kerberos says: Ticket expired. Show tickets with klist")
    assert not tickets.is_outage(expired)
    away = Exception(general, ("Cannot contact any KDC for realm 'A'", -1765328228))
    assert tickets.is_outage(away)
    assert tickets.said(away) == "Kerberos says: Cannot contact any KDC for realm 'A'"
    assert tickets.said(ConnectionError("Connection dropped")) is None


@pytest.mark.parametrize("text", ["job/one", ".", "..", "a%2Fb", "ä ö", "=", "zookeeper"])
def test_any_text_is_the_name_of_one_node(text: str) -> None:
    assert "/" not in node_name(text)
    assert node_name(text) not in (".", "..")
    assert text_of(node_name(text)) == text
