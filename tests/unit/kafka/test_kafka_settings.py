"""Settings of the Kafka keyed log from a Samza configuration, and its header."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.clock import SystemClock
from grete.config.kafka_tuning import KafkaTuning, kafka_tuning
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.kafka.client import KafkaConnection
from grete.kafka.settings import (
    checkpoint_log_settings,
    client_settings,
    coordinator_log_settings,
)
from grete.keyed_log import kafka_header
from grete.keyed_log.kafka_header import AppendOrigin
from grete.keyed_log.kafka_reader import Terms
from grete.model.streams import StreamSpec
from grete.systems.kafka.stream_settings import KafkaStreamSettings

BROKERS = {"systems.kafka.consumer.bootstrap.servers": "one:9092"}


def test_the_producers_settings_win_and_what_tunes_java_is_left_alone() -> None:
    config = {
        **BROKERS,
        "systems.kafka.producer.bootstrap.servers": "two:9092",
        "systems.kafka.consumer.security.protocol": "SASL_SSL",
        "systems.kafka.producer.acks": "1",
        "systems.kafka.consumer.zookeeper.connect": "zk:2181",
        "systems.other.producer.bootstrap.servers": "three:9092",
    }
    assert client_settings(config, "kafka") == {
        "bootstrap.servers": "two:9092",
        "security.protocol": "SASL_SSL",
    }


def test_user_and_password_come_out_of_the_jaas_line_and_secrets_are_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PASSWORD", "s3;cret")
    line = "org.apache.kafka.common.security.plain.PlainLoginModule required username=ann password="
    for password in ('"${env:PASSWORD}"', '"s3;cret"'):
        settings = client_settings(
            {**BROKERS, "systems.kafka.producer.sasl.jaas.config": f"{line}{password};"}, "kafka"
        )
        assert (settings["sasl.username"], settings["sasl.password"]) == ("ann", "s3;cret")


@pytest.mark.parametrize("password", ['a"b', "a'b", "a;b", "a b", "a\\\\b", "${env:NOT_LOOKED_AT}", ""])
def test_whatever_a_password_holds_comes_through_a_reference(
    password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", password)
    for word in ("${env:PASSWORD}", '"${env:PASSWORD}"', "'${env:PASSWORD}'"):
        line = f"PlainLoginModule required password={word} username='$ConnectionString';"
        settings = client_settings({**BROKERS, "systems.kafka.producer.sasl.jaas.config": line}, "kafka")
        assert (settings["sasl.username"], settings["sasl.password"]) == ("$ConnectionString", password)


def test_a_whole_jaas_line_comes_out_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "jaas").write_text(r'PlainLoginModule required username="a\"b" password="c\\d\"";')
    key = "systems.kafka.producer.sasl.jaas.config"
    settings = client_settings({**BROKERS, key: f"${{file:{tmp_path}/jaas}}"}, "kafka")
    assert (settings["sasl.username"], settings["sasl.password"]) == ('a"b', 'c\\d"')


def test_certificates_and_keys_may_stand_in_the_configuration_itself() -> None:
    names = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
    config = {**BROKERS, **{f"systems.kafka.consumer.{name}": name for name in names}}
    found = client_settings(config, "kafka")
    assert [found[name] for name in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem")] == list(names)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"systems.kafka.producer.ssl.truststore.location": "/trust.jks"}, "ssl.truststore.type=PEM"),
        (
            {"systems.kafka.producer.sasl.jaas.config": "Krb5LoginModule required useKeyTab=true;"},
            "PLAIN, SCRAM",
        ),
        ({"job.coordinator.replication.factor": "none"}, "whole number"),
        ({"systems.kafka.consumer.bootstrap.servers": " "}, "systems.kafka.producer.bootstrap.servers"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_way_out(more: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        coordinator_log_settings(Settings.of({**BROKERS, **more}), "kafka")


@pytest.mark.parametrize("mechanism", [{}, {"systems.kafka.producer.sasl.mechanism": "GSSAPI"}])
def test_tickets_which_the_client_was_built_without_are_refused_with_the_way_out(
    mechanism: dict[str, str],
) -> None:
    config = {**BROKERS, "systems.kafka.producer.security.protocol": "SASL_SSL", **mechanism}
    settings = coordinator_log_settings(Settings.of(config), "kafka")
    with pytest.raises(ConfigError, match=r"Set systems\.kafka\.producer\.sasl\.mechanism .*SCRAM-SHA-512"):
        KafkaConnection.of(settings, SystemClock())


def test_a_trust_store_in_pem_is_used_as_it_is() -> None:
    config = {
        **BROKERS,
        "systems.kafka.producer.ssl.truststore.location": "/ca.pem",
        "systems.kafka.producer.ssl.truststore.type": "PEM",
    }
    assert client_settings(config, "kafka")["ssl.ca.location"] == "/ca.pem"


def test_copies_and_segments_have_samzas_defaults_and_fallbacks() -> None:
    settings = coordinator_log_settings(Settings.of(BROKERS), "kafka")
    assert (settings.replication_factor, settings.segment_bytes) == (3, 26_214_400)
    fallback = {
        **BROKERS,
        "task.checkpoint.replication.factor": "2",
        "task.checkpoint.segment.bytes": "1000000",
    }
    for found in (
        coordinator_log_settings(Settings.of(fallback), "kafka"),
        checkpoint_log_settings(Settings.of(fallback), "kafka"),
    ):
        assert (found.replication_factor, found.segment_bytes) == (2, 1_000_000)
    own = coordinator_log_settings(
        Settings.of({**fallback, "job.coordinator.replication.factor": "5"}), "kafka"
    )
    assert own.replication_factor == 5


def test_settings_do_not_show_their_secrets() -> None:
    line = "PlainLoginModule required username=ann password=hidden;"
    settings = coordinator_log_settings(
        Settings.of({**BROKERS, "systems.kafka.producer.sasl.jaas.config": line}), "kafka"
    )
    assert "hidden" not in repr(settings)


@given(st.none() | st.integers(0), st.text(min_size=1), st.text(), st.integers(0, 10**7))
def test_a_header_comes_back_as_it_was_written(
    epoch: int | None, id_: str, scope: str, remaining: int
) -> None:
    origin = AppendOrigin(epoch, id_, scope)
    try:
        header = kafka_header.with_remaining(remaining, kafka_header.encode(origin))
    except UnicodeEncodeError:
        return  # a lone surrogate is no text
    found = kafka_header.split(header)
    assert found is not None
    assert (found[0], kafka_header.decode(found[1])) == (remaining, origin)


@given(st.binary())
def test_any_bytes_as_header_are_ours_or_foreign_and_never_an_error(header: bytes) -> None:
    found = kafka_header.split(header)
    if found is not None:
        kafka_header.decode(found[1])
    Terms().admit(header, 0)


def test_records_of_a_lower_epoch_count_until_a_higher_one_was_seen() -> None:
    terms = Terms()

    def admit(epoch: int | None, scope: str, id_: str) -> bool:
        return terms.admit(
            kafka_header.with_remaining(0, kafka_header.encode(AppendOrigin(epoch, id_, scope))), 7
        )[0]

    assert [admit(1, "job", "a"), admit(1, "job", "a"), admit(2, "job", "b")] == [True, True, True]
    assert [admit(1, "job", "c"), admit(1, "job", "c")] == [False, False]
    assert [admit(1, "other", "d"), admit(None, "job", "e"), admit(2, "job", "f")] == [True, True, True]


def test_without_the_client_library_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['confluent_kafka'] = None; import grete.keyed_log.kafka"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        "MissingExtra: confluent_kafka is not installed; install it with: pip install 'grete[kafka]'"
        in done.stderr
    )


def test_what_tunes_a_client_is_said_in_librdkafkas_words() -> None:
    side = {"producer": "systems.kafka.producer.", "consumer": "systems.kafka.consumer."}
    config = {
        **BROKERS,
        "systems.kafka.samza.factory": "kafka",
        side["producer"] + "compression.type": "GZIP",
        side["producer"] + "linger.ms": "7",
        side["producer"] + "send.buffer.bytes": "-1",
        side["producer"] + "acks": "0",
        side["consumer"] + "client.rack": "r1",
        side["consumer"] + "fetch.max.wait.ms": "50",
        side["consumer"] + "group.id": "mine",
    }
    tuning = kafka_tuning(config, "kafka")
    assert tuning == KafkaTuning(
        {"compression.type": "gzip", "linger.ms": "7", "socket.send.buffer.bytes": "0"},
        {"client.rack": "r1", "fetch.wait.max.ms": "50"},
    )
    assert tuning.log_producer == {"compression.type": "gzip"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("acks", "1"), ("enable.idempotence", "false"), ("transactional.id", "mine"), ("retries", "0"),
     ("batch.size", "1"), ("delivery.timeout.ms", "1"), ("interceptor.classes", "com.example.Spy")],
)  # fmt: skip
def test_what_would_weaken_a_promise_or_is_javas_is_not_followed_and_named(name: str, value: str) -> None:
    key = f"systems.kafka.producer.{name}"
    config = {**BROKERS, "systems.kafka.samza.factory": "kafka", key: value}
    assert kafka_tuning(config, "kafka") == KafkaTuning()
    assert any(key in warning and warning.startswith("no effect") for warning in check(config).warnings)


@pytest.mark.parametrize(
    ("name", "value"), [("acks", "all"), ("enable.idempotence", "true"), ("linger.ms", "5")]
)
def test_what_is_done_anyway_needs_no_word(name: str, value: str) -> None:
    config = {**BROKERS, "systems.kafka.samza.factory": "kafka", f"systems.kafka.producer.{name}": value}
    assert not [warning for warning in check(config).warnings if name in warning]


def test_a_wrong_setting_of_a_client_is_refused_at_the_submit() -> None:
    for name, value in {"compression.type": "zip", "linger.ms": "soon", "request.timeout.ms": "0"}.items():
        key = f"systems.kafka.producer.{name}"
        errors = check({**BROKERS, "systems.kafka.samza.factory": "kafka", key: value}).errors
        assert [error for error in errors if error.startswith(f"{key}={value!r}: ")], name


@pytest.mark.parametrize(
    "key", ["streams.orders.replication.factor", "systems.kafka.default.stream.replication.factor"]
)
def test_a_replication_factor_that_is_none_is_named_by_the_key_that_says_it(key: str) -> None:
    settings = Settings.of({"streams.orders.samza.system": "kafka", key: "many"})
    with pytest.raises(ConfigError, match=f"^{key}='many'"):
        KafkaStreamSettings(settings, "kafka").of(StreamSpec("orders", 1))
