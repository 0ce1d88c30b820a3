"""Spark's Kafka connector: where it comes from, and its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.spark.session.kafka_connector import ARTIFACT, connector_settings, could_not_start
from grete.spark.session.kafka_options import REDACTED_OPTIONS, StreamAddress, sink_settings, source_settings

SPARK = "4.2.0"


@pytest.fixture(autouse=True)
def no_fetched_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GRETE_SPARK_KAFKA_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def settings(config: dict[str, str], spark_jars: Path) -> dict[str, str]:
    settings = Settings.of(config)
    jars = settings.system("kafka").connector_jars
    return connector_settings(settings.spark.options, jars, spark_version=SPARK, spark_jars=spark_jars)


def jars(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True)
    (directory / f"{ARTIFACT}-{version}.jar").touch()
    (directory / "kafka-clients-3.9.2.jar").touch()
    return directory


def test_spark_fetches_the_connector_of_its_version_beside_what_the_job_wants(tmp_path: Path) -> None:
    package = f"org.apache.spark:{ARTIFACT}:{SPARK}"
    assert settings({}, tmp_path) == {"spark.jars.packages": package}
    config = {"spark.jars.packages": "org.postgresql:postgresql:42.7.0"}
    assert settings(config, tmp_path) == {
        "spark.jars.packages": f"org.postgresql:postgresql:42.7.0,{package}"
    }


def test_jars_that_were_fetched_before_are_taken_from_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = jars(tmp_path / "jars", SPARK)
    config = {"systems.kafka.connector.jars": str(fetched), "spark.jars": "/opt/own.jar"}
    found = settings(config, tmp_path)["spark.jars"].split(",")
    assert found == ["/opt/own.jar", *sorted(map(str, fetched.iterdir()))]
    monkeypatch.setenv("GRETE_SPARK_KAFKA_JARS", str(fetched))
    assert settings({}, tmp_path)["spark.jars"].split(",") == sorted(map(str, fetched.iterdir()))


def test_what_is_in_the_cache_for_another_patch_release_of_spark_is_passed_over(tmp_path: Path) -> None:
    for version in ("4.2.0", "4.2.1"):
        fetched = jars(tmp_path / f"cache/grete/spark-kafka-{version}", version)
        (fetched / "complete").touch()
        settings = connector_settings({}, None, spark_version=version, spark_jars=tmp_path)
        assert f"{ARTIFACT}-{version}.jar" in settings["spark.jars"]
    later = connector_settings({}, None, spark_version="4.2.2", spark_jars=tmp_path)
    assert later == {"spark.jars.packages": f"org.apache.spark:{ARTIFACT}:4.2.2"}


@pytest.mark.parametrize(
    "config",
    [
        {"spark.jars": f"/opt/own.jar,/opt/{ARTIFACT}-{SPARK}.jar"},
        {"spark.jars.packages": f"org.apache.spark:{ARTIFACT}:{SPARK}"},
        {"spark.driver.extraClassPath": f"/opt/a.jar:/opt/{ARTIFACT}-{SPARK}.jar"},
    ],
)
def test_a_connector_that_the_job_brings_along_is_left_alone(config: dict[str, str], tmp_path: Path) -> None:
    assert settings(config, tmp_path) == {}


def test_a_connector_of_another_version_is_refused_before_the_session_starts(tmp_path: Path) -> None:
    message = r"connector 4\.0\.1 is .*, but Spark is 4\.2\.0"
    fetched = jars(tmp_path / "jars", "4.0.1")
    for config in (
        {"systems.kafka.connector.jars": str(fetched)},
        {"spark.jars.packages": f"org.apache.spark:{ARTIFACT}:4.0.1"},
        {"spark.jars": f"/opt/{ARTIFACT}-4.0.1.jar"},
    ):
        with pytest.raises(ConfigError, match=message):
            settings(config, tmp_path)
    with pytest.raises(ConfigError, match=message):
        settings({}, fetched)


def test_a_folder_without_the_connector_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no spark-sql-kafka-0-10_2\.13-4\.2\.0\.jar"):
        settings({"systems.kafka.connector.jars": str(tmp_path)}, tmp_path)


def test_when_it_cannot_be_fetched_the_error_says_what_to_do() -> None:
    error = could_not_start({"spark.jars.packages": "a:b:1"}, RuntimeError("gateway exited"))
    assert "systems.<system>.connector.jars" in str(error)
    assert "connector.jars" not in str(could_not_start({}, RuntimeError("gateway exited")))


CONFIG = {
    "systems.kafka.samza.factory": "kafka",
    "systems.kafka.producer.bootstrap.servers": "broker:9093",
    "systems.kafka.consumer.security.protocol": "SASL_SSL",
    "systems.kafka.consumer.ssl.truststore.location": "/etc/ca.pem",
    "systems.kafka.consumer.ssl.truststore.type": "PEM",
    "systems.kafka.consumer.max.partition.fetch.bytes": "2000000",
    "systems.kafka.consumer.auto.offset.reset": "largest",
    "systems.kafka.consumer.isolation.level": "read_uncommitted",
    "systems.kafka.producer.compression.type": "lz4",
    "systems.kafka.producer.acks": "0",
    "systems.kafka.producer.sasl.mechanism": "PLAIN",
}
ACCESS = {
    "kafka.bootstrap.servers": "broker:9093",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.ssl.truststore.location": "/etc/ca.pem",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.sasl.mechanism": "PLAIN",
}


def test_both_clients_get_in_the_same_way_and_each_is_tuned_by_its_own_settings() -> None:
    assert source_settings(Settings.of(CONFIG), "kafka") == {
        **ACCESS,
        "kafka.max.partition.fetch.bytes": "2000000",
        "kafka.isolation.level": "read_committed",
    }
    assert sink_settings(Settings.of(CONFIG), "kafka") == {
        **ACCESS,
        "kafka.compression.type": "lz4",
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
    }


def test_a_password_of_any_characters_gets_into_the_jaas_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", 'a"b\\c;')
    line = 'org.apache.kafka.Plain required username="u" password="${env:PASSWORD}";'
    config = {**CONFIG, "systems.kafka.producer.sasl.jaas.config": line}
    found = sink_settings(Settings.of(config), "kafka")["kafka.sasl.jaas.config"]
    assert found == 'org.apache.kafka.Plain required username="u" password="a\\"b\\\\c;";'
    monkeypatch.setenv("LINE", found)
    config["systems.kafka.producer.sasl.jaas.config"] = "${env:LINE}"
    assert sink_settings(Settings.of(config), "kafka")["kafka.sasl.jaas.config"] == found


def test_without_brokers_nothing_is_guessed() -> None:
    with pytest.raises(ConfigError, match=r"systems\.kafka\.producer\.bootstrap\.servers is not set"):
        source_settings(Settings.of({"systems.kafka.samza.factory": "kafka"}), "kafka")


@pytest.mark.parametrize(
    "option", ["kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.key.password"]
)
def test_spark_masks_every_option_that_opens_something(option: str) -> None:
    assert re.search(REDACTED_OPTIONS, option)
    assert not re.search(REDACTED_OPTIONS, "kafka.bootstrap.servers")


def test_a_hub_is_a_topic_of_its_namespace_with_a_login_of_its_own_that_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text('se"cret')
    config = {
        "systems.hubs.samza.factory": "eventhubs",
        "systems.hubs.consumer.ssl.truststore.type": "PEM",
        "systems.hubs.eventhubs.skipMessagesLargerThanBytes": "5000",
        "streams.flights.samza.system": "hubs",
        "streams.flights.eventhubs.namespace": "airport",
        "streams.flights.eventhubs.entitypath": "departures",
        "sensitive.streams.flights.eventhubs.sas.keyname": "all",
        "sensitive.streams.flights.eventhubs.sas.token": f"${{file:{tmp_path}/key}}",
    }
    settings = Settings.of(config)
    address = StreamAddress.of(settings, SystemStream("hubs", "flights"))
    assert address.topic == "departures"
    assert "cret" not in repr(address)
    source, sink = source_settings(settings, "hubs", address), sink_settings(settings, "hubs", address)
    assert source["kafka.bootstrap.servers"] == "airport.servicebus.windows.net:9093"
    assert (source["kafka.security.protocol"], source["kafka.sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert source["kafka.ssl.truststore.type"] == "PEM"
    login = (
        'username="$ConnectionString" password="Endpoint=sb://airport.servicebus.windows.net/;'
        'SharedAccessKeyName=all;SharedAccessKey=se\\"cret";'
    )
    assert source["kafka.sasl.jaas.config"].endswith(login)
    assert all(re.search(REDACTED_OPTIONS, name) for name, value in source.items() if "cret" in value)
    assert (sink["kafka.enable.idempotence"], sink["kafka.max.request.size"]) == ("false", "5000")
    own = Settings.of({**config, "systems.hubs.producer.bootstrap.servers": "emulator:9092"})
    assert source_settings(own, "hubs", address)["kafka.bootstrap.servers"] == "emulator:9092"
