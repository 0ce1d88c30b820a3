"""The environment of containers, and of applications beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.application.beside import without_framework
from grete.config.secrets import variables
from grete.environment import CONFIGURED
from grete.launch.process import container_environment

CONFIG = {
    "systems.kafka.producer.bootstrap.servers": "${env:BROKER}",
    "systems.kafka.sasl.password": "${env:PASSWORD} of ${env:USER}",
    "my.file": "${file:/run/secrets/mine}",
    "my.home": "${env:HOME}",
}
INHERITED = {"BROKER": "broker:9092", "PASSWORD": "hidden", "USER": "ann", "HOME": "/home/ann", "OTHER": "x"}


def test_a_container_has_the_variables_that_its_configuration_refers_to_and_no_others() -> None:
    assert variables(CONFIG) == ["BROKER", "HOME", "PASSWORD", "USER"]
    given = container_environment(INHERITED, {CONFIGURED: ",".join(variables(CONFIG))})
    shown = {name: value for name, value in INHERITED.items() if name != "OTHER"}
    assert given == {**shown, CONFIGURED: "BROKER,PASSWORD"}


def test_a_container_reaches_other_machines_as_its_coordinator_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inherited = {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AZURE_CLIENT_ID": "1234",
        "HTTPS_PROXY": "http://proxy:3128",
        "KRB5CCNAME": "FILE:/tmp/krb5cc_0",
        "REQUESTS_CA_BUNDLE": "authority.pem",
    }
    absolute = {"REQUESTS_CA_BUNDLE": f"{tmp_path}/authority.pem", CONFIGURED: ""}
    assert container_environment({**inherited, "OTHER": "x"}, {}) == {**inherited, **absolute}


def test_a_variable_that_is_not_set_is_passed_on_as_none() -> None:
    assert container_environment({"PATH": "/bin"}, {CONFIGURED: "BROKER"}) == {"PATH": "/bin", CONFIGURED: ""}


def test_an_application_beside_the_framework_does_not_see_what_a_container_has_for_its_systems() -> None:
    given = container_environment(INHERITED, {CONFIGURED: ",".join(variables(CONFIG))})
    assert without_framework(given) == {"USER": "ann", "HOME": "/home/ann"}
