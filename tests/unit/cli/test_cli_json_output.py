"""What commands print for programs: every command has a shape that is documented, and keeps to it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from grete.cli.main import main, whole_parser
from grete_workbench.documents.output_shapes import SHAPES
from grete_workbench.documents.outputs import schema

ON_A_TERMINAL = {"top"}


def leaves(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not below:
        yield name, parser
    for found in below:
        for word, each in found.choices.items():
            yield from leaves(each, f"{name} {word}".strip())


def test_every_command_that_prints_for_programs_has_a_documented_shape() -> None:
    commands = {name for name, one in leaves(whole_parser()) if "--output" in one._option_string_actions}
    assert commands - ON_A_TERMINAL == set(SHAPES)


@pytest.mark.parametrize("command", SHAPES)
def test_a_shape_is_a_schema_and_takes_nothing_that_it_does_not_name(command: str) -> None:
    made = schema(SHAPES[command])
    jsonschema.Draft202012Validator.check_schema(made)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate("a text", made)
    assert "additionalProperties" in json.dumps(made)


@pytest.mark.usefixtures("job")
def test_a_document_of_another_shape_fails_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["container", "list", "--job", "orders", "-o", "json"]
    assert main(command) == 0
    monkeypatch.setattr(
        "grete.operations.container_status.container_rows", lambda handle: [{"container": "0"}]
    )
    with pytest.raises(jsonschema.ValidationError):
        main(command)


@pytest.mark.usefixtures("job")
def test_records_that_were_appended_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    command = ["stream", "append", "local.in", "--lines", "--from-file", str(lines), "-o", "json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == {"stream": "local.in", "appended": 2}
