"""Pipelines whose inputs and outputs are columns, decoded and encoded by the serdes of their streams."""

from __future__ import annotations

import base64
import datetime
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.schema_registry import RegistryServer, schema_registry

import grete
from grete.errors import ConfigError, GreteError, ProcessingError, StreamUnreachable
from grete.testing.pipeline import PipelineUnderTest

pytestmark = pytest.mark.spark
DOCUMENT = Path(__file__).parents[2] / "docs" / "pipelines.md"

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "items", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
    ],
}
AT = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
MADE = {"id": 1, "customer": "ann", "at": AT, "items": [{"price": 2.5}]}
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out,local.all",
    "task.max.records.per.batch": "2",
    "job.default.system": "local",
    "systems.local.samza.offset.default": "oldest",
    "streams.in.pipeline.columns": "decoded",
    "streams.out.pipeline.columns": "decoded",
}
OWN = {
    "class": "tests.support.own_serde:Readings",
    "columns": "place STRING, degrees DOUBLE",
    "unit": "C",
}
"""A serde of the application's own."""
Start = Callable[..., PipelineUnderTest]


class Same(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].select("key", "value")


class Columns(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].select("key", "value.*")


class Counts(grete.DataFramePipeline):
    output = "local.out"
    output_mode = "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        return inputs["local.in"].groupBy("key").agg(F.sum("value.id").alias("id"))


class Split(grete.DataFramePipeline):
    def build(self, inputs: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        orders = inputs["local.in"].select("key", "value.*")
        return {"local.out": orders.where("id > 1"), "local.all": orders}


@pytest.fixture
def start(start_pipeline: Start, spark: SparkSession) -> Start:
    def started(application: Any, **more: str) -> PipelineUnderTest:
        return start_pipeline(application, {**CONFIG, **more}, spark=spark)

    return started


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with schema_registry("ann:wonderland-7d1f") as server:
        yield server


def serdes(key: str, message: str, **of_registry: str) -> dict[str, str]:
    """Both streams with these, and `serializers.registry.<message>.*`."""
    named = {f"systems.local.samza.{part}.serde": name for part, name in (("key", key), ("msg", message))}
    return named | {
        f"serializers.registry.{message}.{name.replace('_', '.')}": v for name, v in of_registry.items()
    }


def sent(job: PipelineUnderTest, stream: str = "local.out") -> list[tuple[Any, Any]]:
    return [(out.key, out.message) for out in job.outputs(stream)]


@pytest.mark.parametrize(
    ("key", "message", "of_registry", "k", "v"),
    [
        ("uuid", "long", {}, uuid.UUID(int=5), -(2**63)),
        ("long", "string", {}, -5, "Ä"),
        ("double", "orders", {"class": "avro", "schema": json.dumps(ORDER)}, -0.5, MADE),
        (
            "string",
            "orders",
            {"class": "json", "schema": "id BIGINT, tags ARRAY<STRING>"},
            "a",
            {"id": 3, "tags": ["x", None]},
        ),
        ("integer", "json", {}, 2**31 - 1, {"any": [1, {"thing": None}]}),
        ("long", "readings", OWN, 7, {"place": "attic", "degrees": -3.5}),
    ],
)
def test_a_record_comes_out_as_it_went_in_by_every_serde(
    start: Start, key: str, message: str, of_registry: dict[str, str], k: Any, v: Any
) -> None:
    job = start(Same, **serdes(key, message, **of_registry))
    job.send("local.in", v, key=k)
    job.send("local.in", None, key=k)
    job.send("local.in", v, key=None)
    job.run()
    assert sent(job) == [(k, v), (k, None), (None, v)]


JSON = serdes("string", "orders", **{"class": "json", "schema": "id BIGINT, customer STRING"})
AVRO = serdes("string", "orders", **{"class": "avro", "schema": json.dumps(ORDER)})


def test_columns_of_an_input_go_to_several_outputs_once_through_restarts_and_a_rewind(start: Start) -> None:
    job = start(Split, **JSON, **{"streams.all.pipeline.columns": "decoded"})
    for number in range(3):
        job.send("local.in", {"id": number}, key="a")
    assert job.run_batch() is not None
    job.restart()
    job.run()
    all_of_it = [("a", {"id": number, "customer": None}) for number in range(3)]
    assert sent(job, "local.all") == all_of_it
    assert sent(job) == all_of_it[2:]
    job.replay("local.in", offset=2)
    job.run()
    assert sent(job) == 2 * all_of_it[2:]


def test_what_is_decoded_by_python_keeps_state_and_is_one_source_however_often_it_is_used(
    start: Start,
) -> None:
    job = start(Split, **AVRO, **{"streams.all.pipeline.columns": "decoded"})
    job.send("local.in", MADE, key="a")
    job.send("local.in", {**MADE, "id": 2}, key="a")
    job.run()
    assert [v["id"] for _, v in sent(job, "local.all")] == [1, 2]
    assert sent(job) == [("a", {**MADE, "id": 2})]
    counts = start(Counts, **AVRO, **{"streams.out.samza.msg.serde": "json"})
    for _ in range(2):
        counts.send("local.in", MADE, key="a")
        counts.run()
        counts.restart()
    assert sent(counts) == [("a", {"id": 1}), ("a", {"id": 2})]


def test_json_that_is_not_of_its_schema_or_no_json_is_told_from_what_may_be_missing(start: Start) -> None:
    letters = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
    job = start(Columns, **JSON, **letters)
    good = [b'{"id": null}', b"{}", b'{"more": [1], "id": 2, "customer": "\xc3\x84"}', b" null "]
    bad = [
        b"{",
        b'{"id": "x"}',
        b"",
        b"[1]",
        b'{"customer": "\xff"}',
        b'{"id": 1.5}',
        b"\x00\x00\x00\x00\x01",
    ]
    for value in (*good, *bad):
        job.send_bytes("local.in", value, key=b"a")
    job.run()
    assert [v and (v["id"], v["customer"]) for _, v in sent(job)] == [
        (None, None),
        (None, None),
        (2, "Ä"),
        (None, None),
    ]
    assert [base64.b64decode(one["value_base64"]) for one in job.dead_letters()] == bad


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (AVRO, b"a", b"\x02"),
        (serdes("long", "string"), b"1234567", b"x"),
        (serdes("string", "string"), b"\xff", b"x"),
        (serdes("bytes", "json"), b"", b"{'a'}"),
        (serdes("bytes", "readings", **OWN), b"", b"attic"),
        (serdes("bytes", "readings", **{**OWN, "columns": "place INT"}), b"", b"attic:1 C"),
    ],
)
def test_each_serde_names_the_record_that_it_cannot_read(
    start: Start, config: dict[str, str], key: bytes, value: bytes
) -> None:
    job = start(Same, **config)
    job.send_bytes("local.in", value, key=key)
    with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 0: its (key|value) is not what serde"):
        job.run()
    assert sent(job) == []


@pytest.mark.parametrize(
    ("config", "application"), [(JSON, Counts), (AVRO, Columns)], ids=["Spark", "Python"]
)
def test_records_that_cannot_be_read_are_set_aside_with_their_bytes_once_and_the_others_go_on(
    start: Start, config: dict[str, str], application: type
) -> None:
    letters = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
    more = {"streams.out.samza.msg.serde": "json"}
    job = start(application, **{**config, **letters, **more})
    for number in (1, 2):
        job.send("local.in", {**MADE, "id": number} if config is AVRO else {"id": number}, key="a")
        job.send_bytes("local.in", b"\x02", key=b"b")
    assert job.run_batch(commit=False) is not None
    job.restart()
    assert job.run().dead_letters == 2, "of a batch that was cut short they count once"
    assert [v["id"] for _, v in sent(job)] == ([1, 2] if application is Columns else [1, 3])
    found = job.dead_letters()
    assert [(one["ssp"], one["offset"], one["task"]) for one in found] == [
        ("local.in.0", offset, "Partition 0") for offset in ("1", "3")
    ]
    assert {one["value_base64"] for one in found} == {"Ag=="}
    assert {one["key_base64"] for one in found} == {"Yg=="}
    assert "serde 'orders'" in found[0]["error"]


@pytest.fixture
def by_registry(start: Start, registry: RegistryServer, tmp_path: Path) -> Callable[..., PipelineUnderTest]:
    (tmp_path / "login").write_text(str(registry.login))
    own = {
        "class": "avro-registry",
        "schema_registry_url": registry.url,
        "basic_auth_user_info": f"${{file:{tmp_path}/login}}",
    }

    def started(application: Any, **of_registry: str) -> PipelineUnderTest:
        return start(application, **serdes("string", "orders", **own, **of_registry))

    return started


def test_records_of_older_schemas_are_read_as_the_newest_and_written_with_its_number(
    by_registry: Callable[..., PipelineUnderTest], registry: RegistryServer
) -> None:
    older = {**ORDER, "fields": [ORDER["fields"][0], ORDER["fields"][2], ORDER["fields"][3]]}  # type: ignore[index]
    registry.add("in-value", older)
    registry.add("out-value", ORDER)
    job = by_registry(Columns)
    without = {name: value for name, value in MADE.items() if name != "customer"}
    job.send("local.in", without, key="a")
    registry.add("in-value", ORDER)
    job.restart()
    job.send("local.in", MADE, key="a")
    job.run()
    assert sent(job) == [("a", {**MADE, "customer": None}), ("a", MADE)]
    number = registry.schemas.index(ORDER) + 1
    assert {
        value[:5] for _, batch in job._system.read("out", 0, 0) for value in batch["value"].to_pylist()
    } == {b"\0" + number.to_bytes(4, "big")}
    assert len([one for one in registry.asked if "/ids/1" in one]) <= 4, "a worker asks once for a number"
    assert "wonderland" not in job.plan()


def test_a_schema_that_is_written_is_registered_when_that_is_wanted_and_missed_otherwise(
    by_registry: Callable[..., PipelineUnderTest], registry: RegistryServer
) -> None:
    registry.add("in-value", ORDER)
    job = by_registry(Columns, schema=json.dumps(ORDER))
    job.send("local.in", MADE, key="a")
    with pytest.raises(
        GreteError, match=r"does not have this schema under subject 'out-value'.*auto\.register"
    ):
        job.run()
    job.restart(config={"serializers.registry.orders.auto.register.schemas": "true"})
    job.run()
    assert sent(job) == [("a", MADE)]
    assert registry.subjects["out-value"] == [1]


def test_a_registry_that_does_not_answer_is_no_fault_of_a_record(
    by_registry: Callable[..., PipelineUnderTest], registry: RegistryServer
) -> None:
    registry.add("in-value", ORDER)
    job = by_registry(
        Columns,
        schema=json.dumps(ORDER),
    )
    job.send("local.in", MADE, key="a")
    away = {"serializers.registry.orders.schema.registry.url": "http://127.0.0.1:9"}
    policy = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
    job.restart(config=away | policy)
    with pytest.raises(StreamUnreachable, match="does not answer"):
        job.run()
    assert job.checkpoints() == {}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, r"decoded needs a serde: set streams\.in\.samza\.msg\.serde"),
        ({"streams.in.samza.msg.serde": "tests.toys:Own"}, "cannot load 'tests.toys:Own'"),
        (
            serdes("string", "o", **{**OWN, "columns": "degrees DUBLE"}),
            r"registry\.o\.columns: Spark reads no columns",
        ),
        (
            serdes("string", "o", **{"class": OWN["class"], "unit": "C"}),
            r"gives columns when serializers\.registry\.o\.columns says of which type",
        ),
        (serdes("string", "o", **{"class": "json", "schema": "id BIGNT"}), "Spark reads no columns"),
        (serdes("string", "o", **{"class": "json", "schema": "DECIMAL(3, 1)"}), "is one value"),
        (serdes("string", "o", **{"class": "avro", "schema": '["int", "string"]'}), "union of several types"),
        (
            {
                **JSON,
                **serdes("string", "out", **{"class": "avro", "schema": json.dumps(ORDER)}),
                "streams.in.samza.msg.serde": "orders",
            },
            r"output local\.out: its value lacks at, items",
        ),
        ({**JSON, "streams.out.samza.msg.serde": "long"}, r"is struct<.*and is to be bigint"),
    ],
)
def test_what_cannot_be_decoded_or_encoded_is_named_before_anything_runs(
    start: Start, more: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        start(Columns, **more).plan()


def blocks(language: str) -> list[str]:
    """The examples of the documentation, on the embedded system."""
    found = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return [block.replace("kafka", "local") for block in found]


@pytest.mark.parametrize("kind", ["json", "avro", "avro-registry"])
def test_the_examples_of_the_documentation_run(
    start_pipeline: Start, spark: SparkSession, registry: RegistryServer, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "registry").write_text(str(registry.login))
    [code] = [block for block in blocks("python") if "class Paid" in block]
    [whole] = [block for block in blocks("properties") if "class=json" in block]
    [avro] = [block for block in blocks("properties") if "class=avro\n" in block]
    [more] = [block for block in blocks("properties") if f"class={kind}\n" in block]
    more = more.replace("https://registry:8081", registry.url).replace("/run/secrets", str(tmp_path))
    lines = [*whole.splitlines(), *("" if kind == "json" else more).splitlines()]
    config = dict(line.split("=", 1) for line in lines)
    registry.add("orders-value", json.loads(avro.partition("schema=")[2]))
    if kind == "avro-registry":
        del config["serializers.registry.order.schema"]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, DOCUMENT.name, "exec"), names)  # noqa: S102 - our own document
    job = start_pipeline(
        names["Paid"], {**config, "systems.local.samza.offset.default": "oldest"}, spark=spark
    )
    job.send("local.orders", {"id": 1, "paid": True, "items": ["a", "b"]}, key="x")
    job.send("local.orders", {"id": 2, "paid": False, "items": []}, key="x")
    job.run()
    assert [(out.key, out.message) for out in job.outputs("local.paid")] == [("x", {"id": 1, "count": 2})]
