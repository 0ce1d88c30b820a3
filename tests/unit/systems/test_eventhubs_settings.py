"""Settings from a Samza configuration of Event Hubs, and those that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.application.serdes import IntegerSerde
from grete.config.rules.eventhubs import eventhubs_problems
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.config.settings.eventhubs import HubAddress, HubsSettings
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete.systems.eventhubs.hash import hub_partitioner, lookup3, partition_of_key

HUBS = {
    "systems.hubs.samza.factory": "org.apache.samza.system.eventhub.EventHubSystemFactory",
    "systems.hubs.stream.list": "flights",
    "streams.flights.samza.system": "hubs",
    "streams.flights.eventhubs.namespace": "airport",
    "streams.flights.eventhubs.entitypath": "departures",
    "sensitive.streams.flights.eventhubs.sas.keyname": "listen",
    "sensitive.streams.flights.eventhubs.sas.token": "${env:FLIGHTS_KEY}",
    "job.name": "j",
    "job.coordinator.system": "local",
    "task.class": "m:C",
    "task.inputs": "hubs.flights",
    "task.checkpoint.system": "local",
}


def hub_address(config: dict[str, str], system: str, stream: str) -> HubAddress:
    return HubsSettings(config, system).address(stream)


def problems(**changes: str | None) -> list[str]:
    given = {name.replace("__", "."): value for name, value in changes.items()}
    merged = {**HUBS, **given}
    return list(eventhubs_problems({key: value for key, value in merged.items() if value is not None}))


def test_a_samza_configuration_becomes_a_topic_a_bootstrap_server_and_a_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLIGHTS_KEY", "a+b/c==")
    found = hub_address(HUBS, "hubs", "flights")
    assert found.topic == "departures"
    assert found.client == {
        "bootstrap.servers": "airport.servicebus.windows.net:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "$ConnectionString",
        "sasl.password": "Endpoint=sb://airport.servicebus.windows.net/;SharedAccessKeyName=listen;"
        "SharedAccessKey=a+b/c==",
    }
    assert "a+b/c==" not in repr(found)
    assert check(HUBS).errors == ()


def test_another_cloud_and_a_whole_connection_string_are_taken_as_they_are(tmp_path: Path) -> None:
    whole = "Endpoint=sb://x.servicebus.chinacloudapi.cn/;SharedAccessKeyName=n;SharedAccessKey=k=;EntityPath=flights"
    (tmp_path / "connection").write_text(whole + "\n")
    config = {
        "streams.flights.eventhubs.namespace": "x.servicebus.chinacloudapi.cn",
        "sensitive.streams.flights.eventhubs.sas.token": f"${{file:{tmp_path}/connection}}",
    }
    found = hub_address(config, "hubs", "flights")
    assert found.client["bootstrap.servers"] == "x.servicebus.chinacloudapi.cn:9093"
    assert found.client["sasl.password"] == whole
    assert found.topic == "flights"


def test_a_streams_keys_are_found_by_its_id_and_by_its_name() -> None:
    by_id = {**HUBS, "streams.flights.samza.physical.name": "Flights", "task.inputs": "hubs.Flights"}
    by_id["sensitive.streams.flights.eventhubs.sas.token"] = "Endpoint=sb://x/"
    assert hub_address(by_id, "hubs", "Flights").topic == "departures"
    by_name = {key.replace("streams.flights.", "streams.Flights."): value for key, value in by_id.items()}
    assert hub_address(by_name, "hubs", "Flights").topic == "departures"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"streams.flights.eventhubs.namespace": None}, "Missing streams.flights.eventhubs.namespace"),
        (
            {"sensitive.streams.flights.eventhubs.sas.token": None},
            "Missing sensitive.streams.flights.eventhubs.sas.token",
        ),
        (
            {
                "sensitive.streams.flights.eventhubs.sas.keyname": None,
                "sensitive.streams.flights.eventhubs.sas.token": "abc",
            },
            "Missing sensitive.streams.flights.eventhubs.sas.keyname",
        ),
        ({"job.coordinator.system": "hubs"}, "job.coordinator.system to a Kafka system, or to local"),
        ({"task.checkpoint.system": None}, "task.checkpoint.system='': Event Hubs"),
        ({"task.checkpoint.system": "hubs"}, "task.checkpoint.system='hubs': Event Hubs"),
        ({"stores.s.changelog": "hubs.s"}, "stores.s.changelog is on system 'hubs'"),
        ({"stores.s.factory": "grete.store.sqlite", "job.changelog.system": "hubs"}, "stores.s.changelog"),
    ],
)
def test_what_event_hubs_cannot_do_is_refused_with_the_way_out(
    changes: dict[str, str | None], words: str
) -> None:
    [problem] = problems(**changes)
    assert words in problem


def test_changelogs_go_with_the_checkpoints() -> None:
    assert problems(**{"stores.s.factory": "grete.store.sqlite", "job.default.system": "hubs"}) == []
    assert problems(**{"stores.s.changelog": "local.s"}) == []


def test_a_job_that_only_writes_to_event_hubs_may_check_its_own_streams() -> None:
    config = {**HUBS, "task.inputs": "local.in", "task.outputs": "hubs.flights, hubs.more"}
    [problem, *_] = eventhubs_problems(config)
    assert "Missing streams.more.eventhubs.namespace" in problem


def test_a_policys_name_that_is_missing_is_reported_when_its_key_turns_out_to_be_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLIGHTS_KEY", "only-the-key")
    config = {**HUBS}
    del config["sensitive.streams.flights.eventhubs.sas.keyname"]
    with pytest.raises(ConfigError, match=r"sensitive\.streams\.flights\.eventhubs\.sas\.token") as wrong:
        hub_address(config, "hubs", "flights")
    assert "only-the-key" not in str(wrong.value)


def test_the_hash_is_lookup3() -> None:
    """Its author's own examples."""
    assert lookup3(b"") == (0xDEADBEEF, 0xDEADBEEF)
    assert lookup3(b"Four score and seven years ago") == (0x17770551, 0xCE7226E6)


def test_keys_of_any_length_have_a_partition() -> None:
    found = [partition_of_key(b"k" * length, 8) for length in range(1, 200)]
    assert set(found) == set(range(8))


def method(name: str, serde: str = "string") -> dict[str, str]:
    return {"systems.hubs.eventhubs.partition.method": name, "systems.hubs.samza.key.serde": serde}


def test_partitions_are_chosen_as_the_configuration_says() -> None:
    out = SystemStream("hubs", "out")
    hashed = hub_partitioner(Settings.of({}), out)
    assert hashed(b"key", 8) == partition_of_key(b"key", 8)
    assert hashed(b"", 8) == 0
    number = IntegerSerde().to_bytes(11)
    assert number is not None
    assert hub_partitioner(Settings.of(method("EVENT_HUB_HASHING", "integer")), out)(
        number, 8
    ) == partition_of_key(b"11", 8)
    assert hub_partitioner(Settings.of(method("PARTITION_KEY_AS_PARTITION", "integer")), out)(number, 8) == 3
    in_turn = hub_partitioner(Settings.of(method("round_robin")), out)
    assert [in_turn(b"same", 3) for _ in range(4)] == [0, 1, 2, 0]
    with pytest.raises(ConfigError, match=r"samza\.key\.serde"):
        hub_partitioner(Settings.of(method("PARTITION_KEY_AS_PARTITION")), out)


def test_a_pipeline_on_hubs_commits_in_the_system_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**HUBS, "app.class": "m:P", "task.outputs": "hubs.flights,local.out"}
    del config["task.class"]
    monkeypatch.setenv("FLIGHTS_KEY", "k")
    assert check(config).errors == ()
    assert Settings.of(config).task.commit_system == "local"
    assert Settings.of({**HUBS}).task.commit_system == "hubs", "StreamTasks go through their own system"
    [problem] = check({**config, "task.outputs": "other.out", "systems.other.samza.factory": "local"}).errors
    assert "a pipeline writes to 'local'" in problem
