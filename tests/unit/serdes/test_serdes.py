"""Serdes by name: the built-in ones, Avro, and the application's own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import Serde, SystemStream
from grete.config.settings import Settings
from grete.errors import ConfigError, WireError
from grete.serdes import load_serde, store_serdes, stream_serdes

SCHEMA = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":["null","string"]}]}'
)


class Upper(Serde):
    """An application's serde."""

    def to_bytes(self, value: Any) -> bytes | None:
        return None if value is None else value.upper().encode()

    def from_bytes(self, data: bytes | None) -> Any:
        return None if data is None else data.decode()


def serde(name: str, **config: str) -> Serde:
    return load_serde(name, Settings.of(config), used_by="test")


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("string", "é", b"\xc3\xa9"),
        ("bytes", b"\x00", b"\x00"),
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
        ("integer", -2, b"\xff\xff\xff\xfe"),
        ("long", 1, b"\0\0\0\0\0\0\0\1"),
        ("double", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        ("uuid", UUID(int=1), b"\0" * 15 + b"\1"),
        ("byte", b"x", b"x"),
        ("bytebuffer", b"x", b"x"),
    ],
)
def test_the_built_in_serdes_write_what_samzas_write(name: str, value: Any, data: bytes) -> None:
    made = serde(name)
    assert (made.to_bytes(value), made.from_bytes(data)) == (data, value)
    assert (made.to_bytes(None), made.from_bytes(None)) == (None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("string", 1), ("bytes", "x"), ("integer", 2**31), ("integer", "1"), ("long", 2**63), ("uuid", "x")],
)
def test_a_value_of_another_kind_is_refused(name: str, value: Any) -> None:
    with pytest.raises(WireError):
        serde(name).to_bytes(value)


@pytest.mark.parametrize(
    ("name", "data"), [("integer", b"123"), ("json", b"{"), ("string", b"\xff"), ("long", b""), ("uuid", b"")]
)
def test_bytes_of_another_kind_are_refused(name: str, data: bytes) -> None:
    with pytest.raises((ValueError, WireError)):
        serde(name).from_bytes(data)


@given(st.integers(-(2**63), 2**63 - 1), st.none() | st.text())
def test_avro_round_trips(a: int, b: str | None) -> None:
    avro = serde("r", **{"serializers.registry.r.class": "avro", "serializers.registry.r.schema": SCHEMA})
    value = {"a": a, "b": b}
    assert avro.from_bytes(avro.to_bytes(value)) == value


def test_avro_refuses_what_is_left_over_and_what_is_missing() -> None:
    avro = serde("r", **{"serializers.registry.r.class": "avro", "serializers.registry.r.schema": SCHEMA})
    data = avro.to_bytes({"a": 1, "b": "x"})
    assert data is not None
    for broken in (data + b"x", data[:-1], b""):
        with pytest.raises(WireError):
            avro.from_bytes(broken)
    with pytest.raises(ConfigError, match="needs a schema"):
        serde("r", **{"serializers.registry.r.class": "avro"})


def test_an_applications_own_serde_and_samzas_names_are_found() -> None:
    own = f"{__name__}:Upper" if __name__ != "__main__" else "x"
    import sys

    sys.modules.setdefault(__name__, sys.modules.get(__name__) or __import__("types").ModuleType(__name__))
    setattr(sys.modules[__name__], "Upper", Upper)  # noqa: B010 - a module has no such name by its type
    assert serde("up", **{"serializers.registry.up.class": own}).to_bytes("a") == b"A"
    samza = "org.apache.samza.serializers.JsonSerdeFactory"
    assert serde("j", **{"serializers.registry.j.class": samza}).to_bytes(1) == b"1"
    with pytest.raises(ConfigError, match=r"serializers\.registry\.nope\.class"):
        serde("nope")


def test_a_streams_own_serde_comes_before_its_systems() -> None:
    config = {"systems.local.samza.msg.serde": "json", "streams.special.samza.msg.serde": "string"}
    assert stream_serdes(SystemStream("local", "plain"), Settings.of(config)).message.to_bytes(1) == b"1"
    assert stream_serdes(SystemStream("local", "special"), Settings.of(config)).message.to_bytes("1") == b"1"
    assert stream_serdes(SystemStream("local", "plain"), Settings.of({})).message.to_bytes(b"raw") == b"raw"
    assert store_serdes("s", Settings.of({})).message.to_bytes([1]) == b"[1]"


def test_a_stream_id_that_stands_for_a_topic_brings_its_serde() -> None:
    config = {
        "streams.views.samza.system": "kafka",
        "streams.views.samza.physical.name": "page-views",
        "streams.views.samza.msg.serde": "string",
        "systems.kafka.default.stream.samza.msg.serde": "json",
    }
    assert (
        stream_serdes(SystemStream("kafka", "page-views"), Settings.of(config)).message.to_bytes("a") == b"a"
    )
    assert stream_serdes(SystemStream("kafka", "others"), Settings.of(config)).message.to_bytes("a") == b'"a"'
