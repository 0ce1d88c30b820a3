"""`python -m grete_workbench.documents.outputs` prints docs/json-output.md: what commands print with `-o json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from grete_workbench.documents.output_shapes import LINES, SHAPES, Shape

_TYPES = {
    "text": "string",
    "integer": "integer",
    "number": "number",
    "truth": "boolean",
    "null": "null",
    "any": None,
}


def schema(shape: Shape) -> dict[str, Any]:
    """The shape as JSON schema; a field that it does not name is none."""
    if isinstance(shape, tuple):
        return {"anyOf": [schema(one) for one in shape]}
    if isinstance(shape, list):
        return {"type": "array", "items": schema(shape[0])}
    if isinstance(shape, Mapping):
        named = {name: one for name, one in shape.items() if name != "*"}
        return {
            "type": "object",
            "properties": {name.rstrip("?"): schema(one) for name, one in named.items()},
            "required": [name for name in named if not name.endswith("?")],
            "additionalProperties": schema(shape["*"]) if "*" in shape else False,
        }
    types, _, meaning = shape.partition(": ")
    found = [_TYPES[one] for one in types.split(" or ")]
    described: dict[str, Any] = {"description": meaning} if meaning else {}
    if None not in found:
        described["type"] = found[0] if len(found) == 1 else found
    return described


_HEAD = """\
# What commands print for programs

<!-- Made by `python -m grete_workbench.documents.outputs`; change `output_shapes.py` beside it, not this page. -->

With `-o json` a command prints one JSON document; those marked *lines* print an object on each line, as it comes.
Times are milliseconds since 1970 where a name ends in `_ms`, and seconds where it ends in `_s`. Messages for people
go to the standard error. A field stays as it is within 1.x, new ones may come ([stability.md](stability.md)); `run`
prints a document with `--dry-run` alone. A field in brackets may be missing.
"""


def document() -> str:
    """The page."""
    parts = [_HEAD]
    for command, shape in SHAPES.items():
        parts.append(f"## grete {command}\n\n{_kind(command, shape)}\n")
        rows = list(_rows(shape, ""))
        if rows:
            table = "".join(f"| `{name}` | {what} | {meaning} |\n" for name, what, meaning in rows)
            parts.append(f"| field | type | meaning |\n|---|---|---|\n{table}")
    return "\n".join(parts)


def _kind(command: str, shape: Shape) -> str:
    if command in LINES:
        return "An object, *lines*."
    if isinstance(shape, tuple):
        return "An object, or a list of objects."
    return "A list of objects." if isinstance(shape, list) else "An object."


def _rows(shape: Any, prefix: str) -> Any:
    """Name, type and meaning of each field, those of lists with `[]`."""
    if isinstance(shape, tuple):
        for one in shape:
            yield from _rows(one, prefix)
    elif isinstance(shape, list):
        yield from _rows(shape[0], f"{prefix}[]" if prefix else "")
    elif isinstance(shape, Mapping):
        for name, one in shape.items():
            yield from _field(one, f"{prefix}.{_shown(name)}" if prefix else _shown(name))


def _field(shape: Any, name: str) -> Any:
    if isinstance(shape, str):
        types, _, meaning = shape.partition(": ")
        yield name, types.replace("truth", "true or false"), meaning
    elif isinstance(shape, list) and isinstance(shape[0], str):
        types, _, meaning = shape[0].partition(": ")
        yield name, f"list of {types}", meaning
    else:
        if isinstance(shape, tuple):
            yield name, "may be null", ""
        yield from _rows(shape, name)


def _shown(name: str) -> str:
    return f"[{name[:-1]}]" if name.endswith("?") else "NAME" if name == "*" else name


def main() -> None:
    """Print the page, or with `--schema` all schemas as one JSON document."""
    if sys.argv[1:] == ["--schema"]:
        print(json.dumps({command: schema(shape) for command, shape in SHAPES.items()}, indent=2))
    else:
        print(document(), end="")


if __name__ == "__main__":
    main()
