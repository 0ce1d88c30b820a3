"""Avro with a schema registry: the wire format, the registry's answers, and what has no column."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.support.schema_registry import RegistryServer, schema_registry

from grete.api import Serde
from grete.config.redact import is_secret_key
from grete.config.settings import Settings
from grete.errors import ConfigError, LoginRefused, StreamUnreachable, WireError
from grete.model.ids import SystemStream
from grete.serdes import stream_serdes
from grete.serdes.avro_types import arrow_type

FIRST: Any = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
SECOND = {**FIRST, "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "x"}]}
LOGIN = "ann:secret"


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with schema_registry(LOGIN) as server:
        yield server


def serde(registry: RegistryServer, **more: str) -> Serde:
    own = {
        "class": "avro-registry",
        "schema.registry.url": f"{registry.url}/",
        "basic.auth.user.info": LOGIN,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    config = {f"serializers.registry.r.{name}": value for name, value in own.items()}
    config["systems.kafka.samza.msg.serde"] = "r"
    return stream_serdes(SystemStream("kafka", "clicks"), Settings.of(config)).message


def record(number: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, number))
    out.seek(5)
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def test_a_record_is_a_zero_the_number_of_its_schema_and_the_datum(registry: RegistryServer) -> None:
    registry.add("other", "string")
    assert registry.add("clicks-value", FIRST) == 2
    assert serde(registry).to_bytes({"a": 5}) == b"\0\0\0\0\x02\x0a"
    assert serde(registry).to_bytes(None) is None
    assert serde(registry).from_bytes(b"\0\0\0\0\x02\x0a") == {"a": 5}


def test_records_are_read_as_the_readers_schema_wants_and_each_schema_is_asked_for_once(
    registry: RegistryServer,
) -> None:
    registry.add("clicks-value", FIRST)
    registry.add("clicks-value", SECOND)
    as_written, as_second = serde(registry), serde(registry, schema=json.dumps(SECOND))
    for _ in range(3):
        assert as_written.from_bytes(record(1, FIRST, {"a": 5})) == {"a": 5}
        assert as_second.from_bytes(record(1, FIRST, {"a": 5})) == {"a": 5, "b": "x"}
        assert as_second.from_bytes(record(2, SECOND, {"a": 5, "b": "y"})) == {"a": 5, "b": "y"}
    assert sorted(registry.asked) == ["GET /schemas/ids/1"] * 2 + ["GET /schemas/ids/2"]


def test_the_schema_that_is_written_is_the_newest_or_its_own_which_the_registry_must_have(
    registry: RegistryServer,
) -> None:
    registry.add("clicks-value", FIRST)
    own = {"schema": json.dumps(SECOND)}
    with pytest.raises(ConfigError, match=r"this schema under subject 'clicks-value'.*auto"):
        serde(registry, **own).to_bytes({"a": 1, "b": "z"})
    registers = serde(registry, **own, auto_register_schemas="true")
    assert registers.to_bytes({"a": 1, "b": "z"}) == record(2, SECOND, {"a": 1, "b": "z"})
    assert serde(registry, **own).to_bytes({"a": 1, "b": "z"}) == record(2, SECOND, {"a": 1, "b": "z"})
    with pytest.raises(ConfigError, match=r"does not have subject 'none'.*register a schema"):
        serde(registry, subject="none").to_bytes({"a": 1})
    with pytest.raises(WireError, match="not of the Avro schema"):
        registers.to_bytes({"a": "text", "b": "z"})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\0",
        b"\x01\0\0\0\x01\x0a",
        b"\0\0\0\0\x09\x0a",
        b"\0\0\0\0\x01",
        b"\0\0\0\0\x01\x0a\x0a",
        b"{}",
    ],
)
def test_what_is_not_of_the_format_is_the_records_fault(registry: RegistryServer, data: bytes) -> None:
    registry.add("clicks-value", FIRST)
    with pytest.raises(WireError):
        serde(registry).from_bytes(data)


def test_a_registry_that_is_away_or_does_not_let_us_in_is_not_the_records_fault(
    registry: RegistryServer,
) -> None:
    registry.add("clicks-value", FIRST)
    data = record(1, FIRST, {"a": 5})
    with pytest.raises(LoginRefused, match=r"does not let us in.*basic\.auth\.user\.info") as refused:
        serde(registry, basic_auth_user_info="ann:wrong-word").from_bytes(data)
    assert "wrong-word" not in str(refused.value)
    with pytest.raises(StreamUnreachable, match="does not answer"):
        serde(registry, schema_registry_url="http://127.0.0.1:9").from_bytes(data)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"schema_registry_url": ""}, r"schema\.registry\.url is not set"),
        ({"schema_registry_url": "registry:8081"}, "begins with http"),
        ({"schema_registry_url": "http://ann:pw@registry"}, r"by serializers\.registry\.r\.basic\.auth"),
        ({"basic_auth_user_info": "ann"}, "user:password"),
        ({"schema": "{"}, "cannot read the Avro schema"),
        ({"schema": '"strin"'}, "no Avro schema"),
    ],
)
def test_what_is_configured_wrongly_is_named(
    registry: RegistryServer, more: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        serde(registry, **more)


def test_the_login_is_a_secret_and_the_address_is_none() -> None:
    assert is_secret_key("serializers.registry.r.basic.auth.user.info")
    assert not is_secret_key("serializers.registry.r.schema.registry.url")


def test_avro_types_are_arrows() -> None:
    part = {"type": "record", "name": "p.Part", "fields": [{"name": "n", "type": ["null", "int", "long"]}]}
    fields = [
        ("e", {"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ("f", {"type": "fixed", "name": "F", "size": 2}, pa.binary()),
        ("again", "F", pa.binary()),
        ("d", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, pa.decimal128(5, 2)),
        ("day", {"type": "int", "logicalType": "date"}, pa.date32()),
        ("part", part, pa.struct([pa.field("n", pa.int64())])),
        (
            "parts",
            {"type": "map", "values": "p.Part"},
            pa.map_(pa.string(), pa.struct([pa.field("n", pa.int64())])),
        ),
        ("unknown", {"type": "long", "logicalType": "of-ours"}, pa.int64()),
    ]
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t, _ in fields]}
    found = arrow_type(schema, "schema")
    assert {field.name: field.type for field in found} == {name: kind for name, _, kind in fields}
    assert not any(field.nullable for field in found)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (["int", "string"], "r.x is a union of several types"),
        ({"type": "int", "logicalType": "time-millis"}, "r.x is a time-millis"),
        ({"type": "array", "items": "R"}, r"r.x\[\] is a 'R' within itself"),
        ({"type": "map"}, "is no Avro schema"),
    ],
)
def test_what_has_no_column_is_named(kind: Any, words: str) -> None:
    inner = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "r", "type": inner}]}
    with pytest.raises(ConfigError, match=words):
        arrow_type(schema, "schema")
