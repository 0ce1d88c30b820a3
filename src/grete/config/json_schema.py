"""The table of configuration keys as a JSON schema, by which editors complete, explain and check a configuration.

YAML and TOML may write a name in one piece or nest its parts; the schema has both. Values are checked for the words
that a key takes, no further: `grete run --dry-run` checks all of a configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from grete.config.key import BOOLEAN, INTEGER, LIST, ChangeClass, Key
from grete.config.keys import KEYS

_SCALAR = ["string", "number", "boolean", "null"]
_NAME = "%s"


@dataclass(slots=True)
class _NamePart:
    """A part of a name: the key that ends here, and what may follow."""

    key: Key[object] | None = None
    below: dict[str, _NamePart] = field(default_factory=dict)

    def schema(self) -> dict[str, Any]:
        if self.key is not None and not self.below:
            return _value(self.key)
        named = {name: one.schema() for name, one in sorted(self.below.items()) if name != _NAME}
        nested: dict[str, Any] = {"type": "object", "properties": named}
        if _NAME in self.below:
            nested["additionalProperties"] = self.below[_NAME].schema()
        return nested if self.key is None else {"anyOf": [_value(self.key), nested]}


def json_schema() -> dict[str, Any]:
    """The schema of a whole configuration; keys of the application's own are not refused."""
    keys = [key for key in KEYS if key.change is not ChangeClass.INTERNAL and not key.no_effect]
    root = _NamePart()
    for key in keys:
        node = root
        for part in key.name.split("."):
            node = node.below.setdefault(part, _NamePart())
        node.key = key
    plain = {key.name: _value(key) for key in keys if not key.is_family}
    families = {f"^{key.pattern.pattern}$": _value(key) for key in keys if key.is_family and not key.is_open}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "grete: the configuration of a job",
        "type": "object",
        "properties": {**root.schema()["properties"], **plain},
        "patternProperties": families,
    }


def properties_comments() -> str:
    """Every key with its meaning as a comment, for a `.properties` file: lines to copy from."""
    parts = []
    for key in KEYS:
        if key.change is not ChangeClass.INTERNAL and not key.no_effect:
            default = key.default if key.default is not None else key.default_doc
            parts.append(f"# {_plain(key.doc)} ({key.type.name})\n#{key.name}={default or ''}\n")
    return "\n".join(parts)


def _value(key: Key[object]) -> dict[str, Any]:
    unit = f" In {key.unit}." if key.unit else ""
    found: dict[str, Any] = {"description": f"{_plain(key.doc)}{unit} A change: {key.change.value}."}
    if key.name.endswith(_NAME):
        pass  # what it stands for may have dots, and be nested
    elif key.type is LIST:
        found["type"] = [*_SCALAR, "array"]
    elif key.type is BOOLEAN:
        found["enum"] = [True, False, "true", "false"]
    elif key.type is INTEGER:
        found["type"] = ["integer", "string"]
    elif key.type.choices and not key.aliases:
        found["enum"] = list(key.type.choices)
    else:
        found["type"] = _SCALAR
        if key.type.choices:
            found["examples"] = list(key.type.choices)
    if key.default is not None:
        found["default"] = key.default
    return found


def _plain(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"\1", text)
