"""YAML and TOML as flat configurations: nested names joined with dots, scalars as they are written.

`1.10` stays `1.10`, `010` stays `010`, `yes` stays `yes`: a configuration holds strings, and a YAML reader's guesses
would change them. Only `true` and `false` become lower case, and a null (`~`, `null`, nothing) is no value at all.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import yaml

from grete.errors import ConfigError

MAX_KEYS = 1_000_000
_MAX_DEPTH = 100
_TAG = "tag:yaml.org,2002:"
_SCALARS = {_TAG + name for name in ("str", "int", "float", "bool", "timestamp", "value")}
_COLLECTIONS = (_TAG + "map", _TAG + "seq")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where there is one: 5 MB take it a second, the Python one half a minute."""


def parse_yaml(text: str, *, origin: str) -> dict[str, str]:
    """A YAML document. Its nodes are walked, nothing is constructed from them, so no tag can do anything.

    Raises:
        ConfigError: not YAML, a name given twice, or a value that is no scalar or list of scalars; names the line.
    """
    try:
        _check_depth(text, origin)
        root = yaml.compose(text, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{origin} is not YAML: {' '.join(str(error).split())}") from error
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            f"{origin}, line {_line(root)}: a configuration maps names to values, as in `job.name: counter`"
        )
    return _collect(_walk_yaml(root, "", 0, origin), origin)


def _check_depth(text: str, origin: str) -> None:
    """Refuse deep nesting before the composer sees it: libyaml's recurses in C and takes the process with it."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise ConfigError(f"{origin}, line {_line(event)}: nested more than {_MAX_DEPTH} deep")


def _walk_yaml(node: yaml.Node, name: str, depth: int, origin: str) -> Iterator[tuple[str, str, int]]:
    where = f"{origin}, line {_line(node)}"
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{where}: {name[:80]!r} is nested more than {_MAX_DEPTH} deep, or contains itself")
    if node.tag.startswith("!") or (isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS):
        raise ConfigError(f"{where}: {name} has the tag {node.tag}, which means nothing here; remove it")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _TAG + "merge":
                raise ConfigError(
                    f"{origin}, line {_line(key)}: a name is plain text; write out what `<<` stands for"
                )
            yield from _walk_yaml(value, f"{name}.{key.value}" if name else key.value, depth + 1, origin)
    elif isinstance(node, yaml.SequenceNode):
        items = [_scalar(item, name, origin) for item in node.value]
        yield name, _joined([item for item in items if item is not None], name, where), _line(node)
    else:
        scalar = _scalar(node, name, origin)
        if scalar is not None:
            yield name, scalar, _line(node)


def _scalar(node: yaml.Node, name: str, origin: str) -> str | None:
    if isinstance(node, yaml.ScalarNode):
        value: str = node.value
        if node.tag == _TAG + "null":
            return None
        if node.tag in _SCALARS:
            return value.lower() if value.lower() in ("true", "false") and not node.style else value
    raise ConfigError(
        f"{origin}, line {_line(node)}: {name} is neither a scalar nor a list of scalars; write it as text"
    )


def _line(node: yaml.Node | yaml.Event) -> int:
    return 0 if node.start_mark is None else int(node.start_mark.line) + 1


def parse_toml(text: str, *, origin: str) -> dict[str, str]:
    """A TOML document.

    Raises:
        ConfigError: not TOML (names the line), a name given twice, or a value that is a table in a list.
    """
    try:
        return _collect(_walk_toml(tomllib.loads(text, parse_float=str), "", origin), origin)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
        raise ConfigError(f"{origin} is not TOML: {error}") from error


def _walk_toml(value: Any, name: str, origin: str) -> Iterator[tuple[str, str, int]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _walk_toml(child, f"{name}.{key}" if name else key, origin)
    elif isinstance(value, list):
        if any(isinstance(item, dict | list) for item in value):
            raise ConfigError(
                f"{origin}: {name} is a list of lists or tables; only a list of plain values works"
            )
        yield name, _joined([_toml_text(item) for item in value], name, origin), 0
    else:
        yield name, _toml_text(value), 0


def _toml_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _joined(items: list[str], name: str, where: str) -> str:
    if any("," in item for item in items):
        raise ConfigError(
            f"{where}: an item of the list {name} holds a comma, which separates items; remove it"
        )
    return ",".join(items)


def _collect(entries: Iterator[tuple[str, str, int]], origin: str) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value, line in entries:
        where = f"{origin}, line {line}" if line else origin
        if name in flat:
            raise ConfigError(
                f"{where}: {name} is given twice; remove one (nested and with dots is the same name)"
            )
        if len(flat) >= MAX_KEYS:
            raise ConfigError(
                f"{where}: more than {MAX_KEYS} names; an alias may multiply what it stands for"
            )
        flat[name] = value
    return flat
