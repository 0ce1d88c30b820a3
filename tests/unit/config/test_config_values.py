"""Values are read with Samza's getters, by typed keys, and with Samza's precedence of streams."""

from __future__ import annotations

import pytest

from grete.config.java_regex import compile_java
from grete.config.java_values import double_text, parse_double
from grete.config.key_tables import coordinator, job, task
from grete.config.settings import Settings
from grete.config.settings.streams import StreamSettings
from grete.config.values import required_value_of, value_of
from grete.errors import ConfigError
from grete.model.ids import SystemStream
from grete_workbench.documents.settings import document
from grete_workbench.vectors.map_config import MapConfig

STREAM = SystemStream("k", "in")


def test_null_empty_and_missing_are_three_things() -> None:
    config = MapConfig({"null": None, "empty": ""})
    assert "null" not in config
    assert config.get("empty", "x") == ""
    assert config.get("missing", "x") == "x"
    assert MapConfig({"a": "1"}, {"a": None})["a"] == "1"


def test_a_config_cannot_be_changed_and_does_not_show_secrets() -> None:
    config = MapConfig({"my.password": "hunter2secret"})
    with pytest.raises(ConfigError, match="immutable"):
        config["a"] = "b"
    with pytest.raises(ConfigError, match="immutable"):
        del config["my.password"]
    assert "hunter2secret" not in repr(config)
    assert hash(config) == hash(MapConfig({"my.password": "hunter2secret"}))
    assert config == {"my.password": "hunter2secret"}


def test_a_bad_number_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"job\.http\.port='x' is not a whole number"):
        MapConfig({"job.http.port": "x"}).get_int("job.http.port")


def test_typed_keys_know_defaults_old_names_and_stand_ins() -> None:
    assert required_value_of({}, job.CONTAINER_COUNT) == 1
    assert required_value_of({"yarn.container.count": "4"}, job.CONTAINER_COUNT) == 4
    both = {"yarn.container.count": "4", "job.container.count": "2"}
    assert required_value_of(both, job.CONTAINER_COUNT) == 2
    assert required_value_of({"task.checkpoint.replication.factor": "2"}, coordinator.REPLICATION) == 2
    assert required_value_of({}, coordinator.SEGMENT_BYTES) == 26214400
    assert required_value_of({"task.inputs": "a.b, c.d"}, task.INPUTS) == ("a.b", "c.d")
    assert value_of({"job.config.rewriter.r.class": "x"}, job.REWRITER_CLASS, "r") == "x"
    assert value_of({}, job.REWRITER_CLASS, "r") is None


def test_a_required_key_and_a_wrong_value_say_so() -> None:
    with pytest.raises(ConfigError, match=r"Missing required config: job\.name"):
        required_value_of({}, job.JOB_NAME)
    with pytest.raises(ConfigError, match=r"yarn\.container\.count='x': it is not"):
        required_value_of({"yarn.container.count": "x"}, job.CONTAINER_COUNT)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0.001", "0.001"),
        ("0.0001", "1.0E-4"),
        ("1e7", "1.0E7"),
        ("9999999", "9999999.0"),
        ("-0", "-0.0"),
        ("1e400", "Infinity"),
        ("0x1.8p1", "3.0"),
        ("123456789.5", "1.234567895E8"),
    ],
)
def test_doubles_are_printed_as_java_prints_them(text: str, shown: str) -> None:
    assert double_text(parse_double(text)) == shown


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("regex", "chosen", "left"),
    [
        (r"topic-[a-z[0-9]]+", "topic-a1", "topic-x]"),
        (r"[[a-c][x-z]]+", "ax", "m"),
        (r"[a[b[0-9]]c]+", "abc7", "["),
        (r"[]a]+", "]a", "b"),
        (r"[^]a]", "b", "]"),
        (r"[a|&~]+", "a|&~", "b"),
        (r"\0101[\060]", "A0", "B0"),
        (r"(?i)ORDERS-(?s:.)", "orders-x", "orders"),
        (r"\p{Upper}[\p{Digit}_]+\z", "A1_", "a1"),
        (r"(?<name>a)\.b", "a.b", "axb"),
        (r"\[[\]\[]", "[]", "[a"),
    ],
)
def test_java_regexes_choose_what_java_chooses(regex: str, chosen: str, left: str) -> None:
    pattern = compile_java(regex, used_by="k")
    assert pattern.fullmatch(chosen)
    assert not pattern.fullmatch(left)


def test_the_end_of_a_line_is_javas() -> None:
    assert compile_java(r"(?<name>a)\Z", used_by="k").search("a\n")


@pytest.mark.parametrize(
    "refused",
    [
        *(
            r"[a-z&&[^b]]",
            r"[a&&b]",
            r"[a--b]",
            r"[a[^b]]",
            r"[^a[b]]",
            r"[a-[b]]",
            r"[[a]-z]",
            r"[a[-b]]",
            r"[a",
        ),
        *(r"(?m)^a", r"(?x) a", r"(?i-m:a)", r"\v", r"\p{L}", r"(a)\11", r"\Qa\E", "(", "a\\"),
    ],
)
def test_java_regexes_that_mean_something_else_are_refused(refused: str) -> None:
    with pytest.raises(ConfigError, match="k="):
        compile_java(refused, used_by="k")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "upcoming"),
        ({"systems.k.samza.offset.default": "OLDEST"}, "oldest"),
        (
            {
                "systems.k.samza.offset.default": "oldest",
                "systems.k.default.stream.samza.offset.default": "newest",
            },
            "newest",
        ),
        (
            {
                "systems.k.default.stream.samza.offset.default": "oldest",
                "systems.k.streams.in.samza.offset.default": "newest",
            },
            "newest",
        ),
        (
            {
                "streams.in.samza.offset.default": "Newest",
                "systems.k.streams.in.samza.offset.default": "oldest",
            },
            "newest",
        ),
        ({"systems.k.samza.offset.default": " "}, "upcoming"),
    ],
)
def test_the_default_offset_is_the_streams_before_the_systems(config: dict[str, str], expected: str) -> None:
    assert StreamSettings(config, STREAM).offset_default == expected


def test_a_default_offset_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="none of oldest, newest, upcoming"):
        _ = StreamSettings({"systems.k.samza.offset.default": "first"}, STREAM).offset_default


def test_a_stream_id_is_found_by_its_system_and_physical_name() -> None:
    config = {
        "streams.orders.samza.system": "k",
        "streams.orders.samza.physical.name": "in",
        "streams.orders.samza.key.serde": "json",
        "streams.in.samza.system": "other",
        "streams.in.samza.key.serde": "string",
    }
    assert StreamSettings(config, STREAM).text("samza.key.serde") == "json"


def test_two_ids_of_one_stream_are_refused() -> None:
    config = {
        f"streams.{i}.samza.{k}": v for i in "ab" for k, v in {"system": "k", "physical.name": "in"}.items()
    }
    with pytest.raises(ConfigError, match="all mapped to"):
        StreamSettings(config, STREAM).text("samza.key.serde")


def test_a_broadcast_range_has_a_limit() -> None:
    with pytest.raises(ConfigError, match="every task would read them all"):
        _ = Settings.of({"task.broadcast.inputs": "k.a#[0-2000000000]"}).task.broadcast_inputs


def test_settings_of_all_stores_are_no_stores() -> None:
    config = {
        "stores.default.changelog.replication.factor": "1",
        "stores.backup.factories": "x",
        "stores.s.factory": "y",
    }
    assert Settings.of(config).store_names == ("s",)
    assert Settings.of({"stores.s.changelog": "k.log"}).store("s").changelog_system == "k"
    assert Settings.of({"job.default.system": "d"}).store("s").changelog_system == "d"


def test_containers_get_only_the_coordinator_system_and_no_secret() -> None:
    config = {
        "job.name": "j",
        "job.coordinator.system": "k",
        "systems.k.path": "/p",
        "systems.k.consumer.sasl.password": "hunter2secret",
        "systems.k.producer.sasl.password": "${env:PW}",
        "systems.other.path": "/q",
        "my.key": "v",
    }
    assert Settings.of(config).coordinator.for_containers == {
        "job.name": "j",
        "job.id": "1",
        "job.coordinator.system": "k",
        "systems.k.path": "/p",
        "systems.k.producer.sasl.password": "${env:PW}",
    }


def test_a_coordinator_environment_that_no_process_could_start_with_is_refused() -> None:
    with pytest.raises(ConfigError, match="too many for a container's environment"):
        _ = Settings.of({"job.name": "j", "systems.local.big": "x" * 200_000}).coordinator.environment


def test_the_document_of_all_keys_is_current(request: pytest.FixtureRequest) -> None:
    committed = (request.config.rootpath / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert committed == document(), (
        "run: python -m grete_workbench.documents.settings > docs/configuration.md"
    )
