"""Holds every document that a command prints with `-o json` against the shape that the documentation has of it."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from types import FrameType
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from grete.cli import output
from grete_workbench.documents.output_shapes import LINES, SHAPES
from grete_workbench.documents.outputs import schema


class DocumentedJson:
    """In place of `json` in `grete.cli.output`: what a command prints has the documented shape, or its test fails."""

    def __getattr__(self, name: str) -> Any:
        return getattr(json, name)

    def dumps(self, document: Any, **options: Any) -> str:
        command = _running_command()
        if command is not None and "ensure_ascii" in options:  # else a single character is escaped
            is_line = bool(options.get("separators"))
            assert is_line == (command in LINES), f"{command} prints {'lines' if is_line else 'a document'}"
            _validator(command).validate(json.loads(json.dumps(document)))
        return json.dumps(document, **options)


@functools.cache
def _validator(command: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(SHAPES[command]))


def _running_command() -> str | None:
    """The command whose options are those of the nearest caller that has any; None of another program."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        options = frame.f_locals.get("options")
        if isinstance(options, argparse.Namespace) and isinstance(getattr(options, "command", None), str):
            words = (options.command, getattr(options, "action", None), getattr(options, "origin", None))
            name = " ".join(word for word in words if isinstance(word, str))
            return None if name == "config schema" else name
        frame = frame.f_back
    return None


def check_outputs() -> None:
    """From now on, in this process."""
    vars(output)["json"] = DocumentedJson()
