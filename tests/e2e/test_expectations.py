"""What a pipeline expects of its rows: counted, left out, set aside with the batch, or the end of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import grete
from grete.errors import ApplicationError, ConfigError, GreteError, ProcessingError
from grete.testing.pipeline import PipelineUnderTest

pytestmark = pytest.mark.spark
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out,local.all",
    "task.max.records.per.batch": "2",
    "job.default.system": "local",
    "systems.local.samza.offset.default": "oldest",
}
DECODED = {
    "streams.in.pipeline.columns": "decoded",
    "streams.in.samza.msg.serde": "columns",
    "serializers.registry.columns.class": "json",
    "serializers.registry.columns.schema": "id LONG, amount LONG",
}
ASIDE = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
ORDERS = [
    {"id": 1, "amount": 5},
    {"id": 2, "amount": -1},
    {"id": 3},
    {"id": 4, "amount": 0},
    {"id": 5, "amount": 2},
]
Start = Callable[..., PipelineUnderTest]


class Orders(grete.DataFramePipeline):
    """Orders with what is in their bytes beside them, to two outputs: what is right, and as it came."""

    def build(self, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        orders = inputs["local.in"]
        read = orders.select(
            "*", F.from_json(F.col("value").cast("string"), "id LONG, amount LONG").alias("read")
        )
        action = self.context.config["action"]
        right = self.context.expect(read, "read.amount >= 0", action, name="amount")  # type: ignore[arg-type]
        return {"local.out": right.select(F.col("read.id")), "local.all": orders.select("value")}


class Counted(grete.DataFramePipeline):
    """Counts decoded orders of which amounts are not negative."""

    output, output_mode = "local.out", "update"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        right = self.context.expect(inputs["local.in"], "value.amount >= 0", "dead-letter")
        return right.groupBy(F.lit("all").alias("key")).agg(F.count("*").alias("n"))


class Twice(grete.DataFramePipeline):
    """Uses what it expects twice, and expects more of a part of it. Keys are numbers."""

    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        orders = self.context.expect(inputs["local.in"], "key <> 3", "dead-letter")
        paid = self.context.expect(orders.where("value.amount > 0"), "value.amount < 5", "drop")
        return paid.union(orders.where("value.amount <= 0")).select(F.col("value.id"))


class Wrong(grete.DataFramePipeline):
    """Expects what `wrong` names."""

    output = "local.out"

    def build(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        frame, expect = inputs["local.in"].select("value"), self.context.expect
        match self.context.config["wrong"]:
            case "action":
                return expect(frame, "true", "dorp")  # type: ignore[arg-type]
            case "name":
                return expect(expect(frame, "true"), "true")
            case "column":
                return expect(frame, "amuont >= 0")
            case "letters":
                return expect(frame, "true", "dead-letter")
        return expect(inputs["local.in"], "false", "dead-letter").select("value")


def fill(job: PipelineUnderTest) -> None:
    for order in ORDERS:
        job.send_bytes("local.in", json.dumps(order).encode())


def ran(start: Start, action: str, **more: str) -> PipelineUnderTest:
    job = start(Orders, {**CONFIG, **more, "action": action})
    fill(job)
    job.run()
    return job


def ids(job: PipelineUnderTest) -> list[int]:
    return [json.loads(out)["id"] for out in job.messages("local.out")]


def counted(job: PipelineUnderTest, name: str) -> Any:
    return job.metrics()[f"expectation.{name}"]


@pytest.mark.parametrize(
    ("action", "expected"), [("count", [1, 2, 3, 4, 5]), ("drop", [1, 4, 5]), ("dead-letter", [1, 4, 5])]
)
def test_rows_go_where_the_action_says_and_are_counted(
    start_pipeline: Start, action: str, expected: list[int]
) -> None:
    job = ran(start_pipeline, action, **(ASIDE if action == "dead-letter" else {}))
    assert ids(job) == expected
    assert len(job.messages("local.all")) == len(ORDERS)
    assert counted(job, "amount") == {"checked": 5, "failed": 2}, "null is not met"
    if action == "dead-letter":
        letters = [json.loads(letter) for letter in job.messages("local.dead")]
        assert [(one["ssp"], one["offset"], one["task"]) for one in letters] == [
            ("local.in.0", str(offset), "Partition 0") for offset in (1, 2)
        ]
        assert {one["error"] for one in letters} == {"expectation 'amount' is not met"}
        assert [json.loads(base64.b64decode(one["value_base64"])) for one in letters] == ORDERS[1:3]


def test_a_row_that_must_not_be_ends_its_batch_and_names_its_record(start_pipeline: Start) -> None:
    with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 1: expectation 'amount' is not met"):
        ran(start_pipeline, "fail")


def test_decoded_rows_are_set_aside_as_json_and_what_keeps_state_never_sees_them(
    start_pipeline: Start,
) -> None:
    job = start_pipeline(Counted, {**CONFIG, **DECODED, **ASIDE})
    fill(job)
    job.send_bytes("local.in", b"no json")
    assert job.run().dead_letters == 3
    assert json.loads(job.messages("local.out")[-1])["n"] == 3
    values = [base64.b64decode(json.loads(one)["value_base64"]) for one in job.messages("local.dead")]
    assert sorted(values) == sorted([b'{"id":2,"amount":-1}', b'{"id":3}', b"no json"])
    assert counted(job, "value.amount >= 0") == {"checked": 5, "failed": 2}
    job.replay("local.in", discard_state=True)
    job.run()
    assert counted(job, "value.amount >= 0") == {"checked": 5, "failed": 2}, "of its own start"


def test_what_is_expected_may_be_used_twice_and_more_be_expected_of_a_part(start_pipeline: Start) -> None:
    job = start_pipeline(Twice, {**CONFIG, **DECODED, **ASIDE, "streams.in.samza.key.serde": "long"})
    for order in ORDERS:
        job.send_bytes("local.in", json.dumps(order).encode(), key=order["id"].to_bytes(8, "big"))
    job.run()
    assert sorted(ids(job)) == [2, 4, 5]
    assert counted(job, "key <> 3") == {"checked": 5, "failed": 1}
    assert counted(job, "value.amount < 5") == {"checked": 2, "failed": 1}
    [letter] = map(json.loads, job.messages("local.dead"))
    assert base64.b64decode(letter["key_base64"]) == b"3"


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        ("action", ConfigError, "there is no action 'dorp'; did you mean drop"),
        ("name", ConfigError, "there are two expectations 'true'"),
        ("column", ApplicationError, "amuont"),
        ("letters", ConfigError, "have no column stream, partition, offset, key any more"),
        ("stream", ConfigError, "the job has no stream of dead letters: set task.poison.policy=dead-letter"),
    ],
)
def test_what_cannot_be_expected_is_refused_before_anything_is_read(
    start_pipeline: Start, wrong: str, kind: type[GreteError], said: str
) -> None:
    job = start_pipeline(Wrong, {**CONFIG, "wrong": wrong})
    fill(job)
    with pytest.raises(kind, match=said):
        job.run()
