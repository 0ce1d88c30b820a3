"""A question about configuration has one answer: outside `grete.config` nothing looks a key up in a mapping."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import grete

PACKAGE = Path(grete.__file__).parent
WHOLE = ("config", "migration", "wire", "metadata")
"""Their subject is configurations themselves: read, checked, compared, encoded, kept in the stream."""
NAMES = {"config", "_config", "configuration", "raw", "effective"}
EXCEPTIONS = {
    "application/resolved_config.py": "gives the application its configuration as a mapping",
    "cli/config_command.py": "prints whichever key it is asked for",
    "cli/doctor_kafka.py": "a topic's settings at the brokers",
    "cli/migrate_command.py": "shows keys of a configuration that is not grete's yet",
    "kafka/login.py": "passes on a client's keys by the client's names",
    "kafka/log_topic.py": "a topic's settings at the brokers",
    "systems/kafka/stream_settings.py": "a topic's settings at the brokers",
    "testing/counting.py": "is an application, which gets its configuration as a mapping",
    "testing/simulator/watch.py": "compares configurations key by key",
    "testing/vectors/config_cases.py": "checks Samza's getters, and keys that have no effect here",
}


def test_outside_config_keys_are_read_through_settings_alone() -> None:
    found = {
        f"{path}: {read}"
        for path, tree in _modules()
        if path not in EXCEPTIONS
        for read in sorted(_raw_reads(tree))
    }
    assert found == set()


def test_exceptions_that_read_no_key_any_more_leave_the_list() -> None:
    reading = {path for path, tree in _modules() if any(_raw_reads(tree))}
    assert set(EXCEPTIONS) - reading == set()


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] not in WHOLE:
            yield relative.as_posix(), ast.parse(path.read_text())


def _raw_reads(tree: ast.Module) -> Iterator[str]:
    """Look-ups in a configuration, whatever the key; and in any mapping by a key of the table."""
    keys = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("grete.config.key_tables")
        for alias in node.names
    }
    for node in ast.walk(tree):
        for mapping, key in _look_ups(node):
            if _last_name(mapping) in NAMES or _is_of_table(key, keys):
                yield ast.unparse(node)


def _look_ups(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(mapping, key) of `mapping.get(key)`, `mapping[key]` that is read, and `key in mapping`."""
    match node:
        case ast.Call(func=ast.Attribute(value=mapping, attr="get"), args=[key, *_]):
            yield mapping, key
        case ast.Subscript(value=mapping, slice=key, ctx=ast.Load()):
            yield mapping, key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[mapping]):
            yield mapping, key


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_of_table(key: ast.expr, keys: set[str]) -> bool:
    """Whether the key is `KEY.name` or `KEY.named(...)` of an imported key, or of an imported table."""
    match key:
        case ast.Call(func=ast.Attribute(value=of, attr="named")) | ast.Attribute(value=of, attr="name"):
            return any(isinstance(name, ast.Name) and name.id in keys for name in ast.walk(of))
    return False
