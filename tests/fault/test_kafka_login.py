"""Getting in to Kafka brokers through SASL_SSL, and what is said when they do not let us in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.certificates import make_authority
from tests.support.secure_kafka import SecureCluster

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordination.kafka import KafkaCoordination
from grete.errors import ConfigError, Fenced, LogError, LoginRefused
from grete.kafka.settings import coordinator_log_settings
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.kafka import KafkaKeyedLog

pytestmark = pytest.mark.fault
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def config_of(secure: SecureCluster, **more: str) -> dict[str, str]:
    """A Samza configuration whose secrets are references, as user ann."""
    consumer = {
        "bootstrap.servers": secure.secure_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} username="ann" password="${{env:ANNS_PASSWORD}}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secure.login.authority.ca_pem),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return {
        "job.coordinator.replication.factor": "1",
        **{f"systems.kafka.consumer.{name}": value for name, value in consumer.items()},
    }


@pytest.fixture(autouse=True)
def _password(secure_kafka: SecureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANNS_PASSWORD", secure_kafka.login.users["ann"])


def open_log(config: Mapping[str, str]) -> KafkaKeyedLog:
    return KafkaKeyedLog(
        f"secured-{uuid.uuid4().hex[:8]}",
        coordinator_log_settings(Settings.of(config), "kafka"),
        SystemClock(),
    )


def as_bob(secure: SecureCluster) -> dict[str, str]:
    return config_of(
        secure,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=f'{SCRAM} username="bob" password="{secure.login.scram_users["bob"]}";',
    )


def with_the_certificate_itself(secure: SecureCluster) -> dict[str, str]:
    config = config_of(
        secure,
        ssl_truststore_certificates=f"${{file:{secure.login.authority.ca_pem}}}",
        ssl_truststore_type="PEM",
    )
    del config["systems.kafka.consumer.ssl.truststore.location"]
    return config


@pytest.mark.parametrize("config", [config_of, as_bob, with_the_certificate_itself])
def test_a_log_behind_sasl_ssl_keeps_and_fences_as_any_other(
    secure_kafka: SecureCluster, config: object
) -> None:
    with closing(open_log(config(secure_kafka))) as log:
        log.append([Entry(b"k", b"v")], fence=Fence("scope", 2))
        assert [(r.key, r.value, r.epoch) for r in log.read()] == [(b"k", b"v", 2)]
        with pytest.raises(Fenced):
            log.append([Entry(b"k", b"late")], fence=Fence("scope", 1))


def test_leaders_are_elected_behind_sasl_ssl(secure_kafka: SecureCluster) -> None:
    settings = coordinator_log_settings(Settings.of(config_of(secure_kafka)), "kafka")
    with closing(
        KafkaCoordination(settings, SystemClock(), topic_prefix=f"__{uuid.uuid4().hex[:8]}_")
    ) as own:
        leadership = own.campaign("job", epoch_floor=4)
        assert leadership.epoch == 5
        renewed = own.renew(leadership)
        assert renewed is not None
        assert own.holder("job") is not None
        own.release(renewed)


def test_a_wrong_password_is_reported_with_the_key_that_holds_it(
    secure_kafka: SecureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported at once, although the log waits thirty seconds for brokers that are away."""
    monkeypatch.setenv("ANNS_PASSWORD", "not-the-password")
    with pytest.raises(LoginRefused) as refused:
        open_log(config_of(secure_kafka))
    text = str(refused.value)
    assert "system 'kafka'" in text
    assert "systems.kafka.consumer.sasl.jaas.config" in text
    assert "not-the-password" not in text


def test_a_mechanism_that_the_brokers_lack_is_reported_with_those_they_have(
    secure_kafka: SecureCluster,
) -> None:
    config = config_of(secure_kafka, sasl_mechanism="SCRAM-SHA-512")
    with pytest.raises(LoginRefused, match=r"PLAIN,SCRAM-SHA-256.*systems\.kafka\.consumer\.sasl\.mechanism"):
        open_log(config)


def test_brokers_of_an_authority_that_is_not_trusted_are_refused(
    secure_kafka: SecureCluster, tmp_path: Path
) -> None:
    other = make_authority(tmp_path)
    config = config_of(secure_kafka, ssl_truststore_location=str(other.ca_pem))
    with pytest.raises(LoginRefused, match=r"systems\.kafka\.consumer\.ssl\.truststore\.location"):
        open_log(config)


def test_a_certificate_for_other_names_is_refused(secure_kafka: SecureCluster) -> None:
    config = config_of(
        secure_kafka, bootstrap_servers=secure_kafka.secure_bootstrap.replace("127.0.0.1", "localhost")
    )
    with pytest.raises(LoginRefused, match=r"systems\.kafka\.consumer\.bootstrap\.servers"):
        open_log(config)


def test_a_certificate_that_cannot_be_read_is_reported_before_any_request(
    secure_kafka: SecureCluster,
) -> None:
    config = config_of(secure_kafka, ssl_truststore_location="/nowhere/ca.pem")
    with pytest.raises(ConfigError, match=r"systems\.kafka\.consumer\.ssl\.truststore\.location"):
        open_log(config)


def test_brokers_with_another_protocol_are_distinguished_from_brokers_that_are_away(
    secure_kafka: SecureCluster,
) -> None:
    """Only when the time is up: a connection that ends in the handshake may be a broker that goes."""
    config = config_of(secure_kafka, bootstrap_servers=secure_kafka.bootstrap)
    settings = coordinator_log_settings(Settings.of(config), "kafka")
    with pytest.raises(LogError, match=r"check systems\.kafka\.consumer\.security\.protocol"):
        KafkaKeyedLog("never", replace(settings, timeout_s=1.0), SystemClock())
