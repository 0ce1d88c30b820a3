"""Each operator of Samza's high-level API, as docs/operators.md has it: as a StreamTask and as a pipeline."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grete.testing.job import JobUnderTest
from grete.testing.pipeline import PipelineUnderTest
from grete.testing.pytest_fixtures import start_job as start_job

DOCUMENT = Path(__file__).parents[2] / "docs" / "operators.md"
ANN, BOB, AGAIN = (
    {"user": "ann", "page": "/a/b", "ms": 1500},
    {"user": "bob", "page": "/a", "ms": 200},
    {"user": "ann", "page": "/a", "ms": 900},
)
VIEWS = [("views", ANN), ("views", BOB), ("views", AGAIN)]
CLICK = {"user": "ann", "button": "buy"}
LATER = ("views", {"user": "zoe", "page": "/z", "ms": 1})
"""Five minutes after all others: windows of a pipeline end by records alone."""
NOW_MS = 1_700_000_000_000
Outputs = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Operator:
    """What it is given beside the views, and what comes out of it, in any order."""

    expected: Outputs
    sent: Sequence[tuple[str, Mapping[str, Any] | str]] = field(default_factory=lambda: VIEWS)
    inputs: str = "local.views"
    stores: Sequence[str] = ()
    task: Mapping[str, str] = field(default_factory=dict)
    passes_s: float = 0


def out(key: str, /, **message: Any) -> tuple[str, Mapping[str, Any]]:
    return key, message


OPERATORS = {
    "Map": Operator([out("ann", page="/a/b", s=1.5), out("bob", page="/a", s=0.2), out("ann", page="/a", s=0.9)]),
    "Filter": Operator([("ann", ANN)]),
    "FlatMap": Operator([out("ann", part="a"), out("ann", part="b"), out("bob", part="a"), out("ann", part="a")]),
    "Merge": Operator(
        [*(out(str(one["user"]), kind="local.views", user=one["user"]) for _, one in VIEWS),
         out("ann", kind="local.clicks", user="ann")],
        sent=[*VIEWS, ("clicks", CLICK)],
        inputs="local.views,local.clicks",
    ),
    "Broadcast": Operator(
        [("ann", ANN)],
        sent=[("rules", "hidden"), *VIEWS],
        stores=["rules"],
        task={
            "task.inputs": "local.views,local.rules",
            "task.broadcast.inputs": "local.rules#0",
            "streams.rules.samza.bootstrap": "true",
        },
    ),
    "PartitionBy": Operator([("/a/b", ANN), ("/a", BOB), ("/a", AGAIN)]),
    "Tumbling": Operator(
        [out("/a", views=2), out("/a/b", views=1)],
        stores=["counts"],
        task={"task.window.ms": "60000"},
        passes_s=61,
    ),
    "Session": Operator([out("ann", views=2), out("bob", views=1)], stores=["counts", "ends"], passes_s=40),
    "Join": Operator(
        [("ann", {**ANN, "button": "buy"})],
        sent=[("views", ANN), ("clicks", CLICK)],
        inputs="local.views,local.clicks",
        stores=["waiting"],
        task={"stores.waiting.rocksdb.ttl.ms": "3600000"},
    ),
    "Table": Operator(
        [("ann", {**ANN, "country": "at"}), ("bob", BOB), ("ann", {**AGAIN, "country": "at"})],
        sent=[("users", {"user": "ann", "country": "at"}), *VIEWS],
        stores=["users"],
        task={"stores.users.side.inputs": "local.users"},
    ),
    "Sink": Operator([]),
    "SendTo": Operator([("bob", BOB), ("ann", AGAIN)]),
}  # fmt: skip
OF_ALL = {
    "job.default.system": "local",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "task.outputs": "local.out,local.slow",
}
CLICKS = {
    "streams.clicks.pipeline.columns": "decoded",
    "streams.clicks.samza.msg.serde": "click",
    "serializers.registry.click.class": "json",
    "serializers.registry.click.schema": "user STRING, button STRING",
}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def application() -> dict[str, Any]:
    """What the blocks of the document define, one after the other."""
    names: dict[str, Any] = {"__name__": "operators"}
    for code in blocks("python"):
        exec(compile(code, DOCUMENT.name, "exec"), names)  # noqa: S102 - our own document
    return names


def fill(job: JobUnderTest, sent: Sequence[tuple[str, Any]]) -> None:
    for number, (stream, message) in enumerate(sent):
        key = "/a" if stream == "rules" else message["user"]
        at_ms = NOW_MS + 1_000 * number + (300_000 if (stream, message) == LATER else 0)
        job.send(f"local.{stream}", message, key=key, timestamp_ms=at_ms)


def received(job: JobUnderTest, stream: str = "local.out") -> list[tuple[str, dict[str, Any]]]:
    """In an order of their own, without fields that are null."""
    found = []
    for one in job.outputs(stream):
        key, message = (
            json.loads(part) if isinstance(part, bytes) else part for part in (one.key, one.message)
        )
        found.append((key, {name: value for name, value in message.items() if value is not None}))
    return sorted(found, key=repr)


def in_order(expected: Outputs) -> list[tuple[str, Mapping[str, Any]]]:
    return sorted(expected, key=repr)


def test_all_of_them_are_tried(application: Mapping[str, Any]) -> None:
    kinds = {f"{name}{kind}" for name in OPERATORS for kind in ("Task", "Pipeline")}
    assert kinds == {name for name in application if name.endswith(("Task", "Pipeline"))}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_task_does_what_the_operator_does(
    name: str, application: Mapping[str, Any], start_job: Callable[..., JobUnderTest], tmp_path: Path
) -> None:
    given = OPERATORS[name]
    stores = {
        f"stores.{store}.{key}": value
        for store in given.stores
        for key, value in (("factory", "grete.store.sqlite"), ("key.serde", "string"), ("msg.serde", "json"))
    }
    config = {**OF_ALL, "task.inputs": given.inputs, **stores, **given.task, "app.folder": str(tmp_path)}
    job = start_job(application[f"{name}Task"], config)
    fill(job, given.sent)
    job.run()
    job.clock.advance(given.passes_s)
    job.run()
    assert received(job) == in_order(given.expected)
    if name == "SendTo":
        assert received(job, "local.slow") == [("ann", ANN)]
    if name == "Sink":
        assert sorted(path.read_text() for path in tmp_path.glob("0-*.txt")) == ["/a", "/a", "/a/b"]


def test_a_processor_makes_the_entries_of_a_table(
    application: Mapping[str, Any], start_job: Callable[..., JobUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("adults")
    vars(module).update(application)
    monkeypatch.setitem(sys.modules, "adults", module)
    users = {"factory": "grete.store.sqlite", "key.serde": "string", "msg.serde": "json"}
    sides = {"side.inputs": "local.users", "side.inputs.processor.factory": "adults:Adults"}
    stores = {f"stores.users.{key}": value for key, value in {**users, **sides}.items()}
    job = start_job(application["MapTask"], {**OF_ALL, "task.inputs": "local.views", **stores})
    fill(
        job,
        [("users", {"user": user, "age": age, "country": "at"}) for user, age in (("ann", 18), ("bob", 5))],
    )
    job.run()
    assert job.store("users", "Partition 0") == {"ann": "at"}


@pytest.mark.spark
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_pipeline_does_what_the_operator_does(
    name: str,
    application: Mapping[str, Any],
    start_pipeline: Callable[..., PipelineUnderTest],
    tmp_path: Path,
) -> None:
    given = OPERATORS[name]
    [columns] = [block for block in blocks("properties") if "pipeline.columns" in block]
    decoded = dict(line.split("=", 1) for line in columns.splitlines())
    (tmp_path / "rules.json").write_text(json.dumps({"page": "/a", "rule": "hidden"}))
    (tmp_path / "users.json").write_text(json.dumps({"user": "ann", "country": "at"}))
    own = {"rules": "rules.json", "users": "users.json", "folder": ""}
    places = {f"app.{key}": str(tmp_path / file) for key, file in own.items()}
    config = {**OF_ALL, "task.inputs": given.inputs, **decoded, **CLICKS, **places}
    job = start_pipeline(application[f"{name}Pipeline"], config)
    fill(job, [one for one in given.sent if one[0] in ("views", "clicks")])
    if given.passes_s:
        fill(job, [LATER])
    job.run()
    assert received(job) == in_order(given.expected)
    if name == "SendTo":
        assert received(job, "local.slow") == [("ann", ANN)]
    if name == "Sink":
        written = [line for path in tmp_path.glob("*.txt") for line in path.read_text().splitlines()]
        assert sorted(written) == ["/a", "/a", "/a/b"]
