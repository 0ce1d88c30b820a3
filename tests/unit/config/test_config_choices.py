"""Choices: what validation accepts is what is used, for every key of the table that is one of a few words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import grete
from grete import StreamTask
from grete.config.derived import canonical_keys
from grete.config.key import ChangeClass, Key
from grete.config.key_tables import coordinator, eventhubs, job, samza, streams, task
from grete.config.keys import KEYS
from grete.config.rules.changes import diff
from grete.config.rules.validate import check
from grete.config.settings.streams import StreamSettings
from grete.config.values import value_of
from grete.model.ids import SystemStream
from grete.testing.job import JobUnderTest

CHOICES = [key for key in KEYS if key.type.choices]
CASES = [(key, choice) for key in CHOICES for choice in key.type.choices]
NAMES = ("local", "in")


def spellings(choice: str) -> list[str]:
    return [choice, choice.lower(), choice.upper(), choice.title(), choice.swapcase()]


def names_of(key: Key[object]) -> tuple[str, ...]:
    """Values for the `%s` of the key's own name."""
    return ("in",) if key.name.startswith("streams.") else NAMES[: key.name.count("%s")]


def test_there_are_choices() -> None:
    assert {key.name for key in CHOICES} >= {
        "job.http.auth", "job.launcher", "job.lineage.state", "task.poison.policy", "task.lost-offsets.policy",
        "streams.%s.samza.offset.default", "streams.%s.samza.partitioner",
    }  # fmt: skip


@pytest.mark.parametrize(("key", "choice"), CASES, ids=lambda one: getattr(one, "name", one))
def test_a_choice_is_used_as_the_table_writes_it_or_refused(key: Key[object], choice: str) -> None:
    names = names_of(key)
    name = key.named(*names)
    for text in spellings(choice):
        assert not [error for error in check({name: text}).errors if error.startswith(f"{name}={text!r}:")], (
            text
        )
        assert value_of({name: text}, key, *names) == choice
        assert value_of(canonical_keys({name: text}), key, *names) == choice
        [change] = diff({name: choice}, {name: text}) or [None]
        assert change is None or change.change_class is ChangeClass.LIVE
    for text in (f" {choice}", f"{choice}s", ""):
        assert [error for error in check({name: text}).errors if error.startswith(f"{name}={text!r}:")], text


@pytest.mark.parametrize("text", ["Oldest", "OLDEST"])
def test_settings_of_streams_are_choices_too(text: str) -> None:
    stream = SystemStream("local", "in")
    for key in ("streams.in.samza.offset.default", "systems.local.samza.offset.default"):
        assert StreamSettings({key: text}, stream).offset_default == "oldest"
    assert StreamSettings({"streams.in.samza.partitioner": "KAFKA"}, stream).partitioner == "kafka"


def test_no_choice_is_read_as_the_text_that_was_written() -> None:
    """A choice is read through `Settings`: as a text, another case would be another value."""
    texts = {key.name for key in CHOICES}
    tables = (coordinator, eventhubs, job, samza, streams, task)
    variables = {name for table in tables for name, one in vars(table).items() if one in CHOICES}
    package = Path(grete.__file__).parent
    found = [
        f"{path.relative_to(package)}:{line}"
        for path in sorted(package.rglob("*.py"))
        if "key_tables" not in path.parts
        for line in _raw_reads(ast.parse(path.read_text()), texts, variables)
    ]
    assert found == []


def _raw_reads(tree: ast.AST, texts: set[str], variables: set[str]) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            key = node.args[0] if node.args else None
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = node.slice
        else:
            continue
        if isinstance(key, ast.Constant) and key.value in texts:
            yield node.lineno
        if isinstance(key, ast.Call):
            key = key.func
        if isinstance(key, ast.Attribute) and key.attr in ("name", "named"):
            of = key.value
            if (isinstance(of, ast.Name) and of.id in variables) or (
                isinstance(of, ast.Attribute) and of.attr in variables
            ):
                yield node.lineno


class Fussy(StreamTask):
    """Cannot process what is no number."""

    def process(self, envelope, collector, coordinator):  # type: ignore[no-untyped-def]
        int(envelope.message)


def test_dead_letters_are_put_aside_however_the_policy_is_capitalised() -> None:
    config = {
        "task.inputs": "local.in",
        "systems.local.samza.msg.serde": "string",
        "systems.local.samza.offset.default": "Oldest",
        "task.poison.policy": "Dead-Letter",
        "task.poison.dead-letter.stream": "local.dead",
    }
    with JobUnderTest(Fussy, config) as running:
        running.send("local.in", "no number")
        running.send("local.in", "1")
        assert running.run().dead_letters == 1
