"""Patterns end where the text ends: `$` also matches before a last newline, and lets through what it should not."""

from __future__ import annotations

import ast
import re
import re._parser as parser  # type: ignore[import-not-found] # there is no other that says what a pattern is made of
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import grete
from grete.config.redact import is_secret_key
from grete.deploy.resource_manager import YarnApplication

PACKAGE = Path(grete.__file__).parent
TAKES_PATTERNS = re.compile(r"re\.\w+|.*\.(regexp_\w+|rlike)|(msgspec\.)?Meta")


def test_no_pattern_of_the_package_ends_in_a_dollar() -> None:
    """With MULTILINE it means the end of a line, which is then what was meant."""
    found = {
        f"{path.relative_to(PACKAGE)}: {pattern}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for pattern in dollars(ast.parse(path.read_text()))
    }
    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        r're.compile(r"a|b$")',
        r're.search(rb"(x$)?", text)',
        r'_ID = r"^x_\d+$"; Meta(pattern=_ID)',
        r're.compile(f"{prefix}.*$", re.IGNORECASE)',
        r'F.regexp_extract("column", r"(\d+)$", 1)',
        r'COLUMN = re.compile("a" r"(?=,|$)")',
    ],
)
def test_a_dollar_is_found_wherever_a_pattern_is_written(source: str) -> None:
    assert list(dollars(ast.parse(source)))


@pytest.mark.parametrize(
    "source", [r're.compile(r"\$\{[$]\Z")', r're.compile("x$", re.MULTILINE)', 'getattr(java, "Service$")']
)
def test_what_is_no_end_of_a_text_is_left_alone(source: str) -> None:
    assert not list(dollars(ast.parse(source)))


def dollars(tree: ast.Module) -> Iterator[str]:
    """The patterns with a `$` that stands for the end of the text."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not TAKES_PATTERNS.fullmatch(ast.unparse(call.func)):
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any("MULTILINE" in ast.unparse(each) for each in given):
            continue
        named = {node.id for each in given for node in ast.walk(each) if isinstance(node, ast.Name)}
        yield from (text for each in [*given, *_values(tree, named)] for text in _texts(each) if _ends(text))


def _values(tree: ast.Module, names: set[str]) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id in names for target in targets):
            yield node.value  # type: ignore[attr-defined] # an assignment, which has targets


def _texts(node: ast.expr) -> Iterator[str]:
    """What is written there; something stands in the place of what is put into an f-string."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")
    elif isinstance(node, ast.BinOp):
        yield from (*_texts(node.left), *_texts(node.right))


def _ends(pattern: str) -> bool:
    try:
        return _has_end(parser.parse(pattern.replace(r"\z", r"\Z")))  # as Java writes it
    except re.error:
        return False


def _has_end(parsed: Any) -> bool:
    if isinstance(parsed, parser.SubPattern | list | tuple):
        return any(map(_has_end, parsed))
    return parsed is parser.AT_END


def test_what_stands_behind_a_keys_name_makes_it_no_less_secret() -> None:
    for key in ("storage.key", "apiKey", "access-key"):
        assert is_secret_key(key)
        assert is_secret_key(f"{key}\n")
    assert not is_secret_key("partition.key")
    assert is_secret_key("partition.key\n")


def test_an_application_of_yarn_is_named_by_its_whole_id() -> None:
    """The id becomes part of the address of a kill."""
    document = {"id": "application_1_2", "state": "RUNNING"}
    assert msgspec.convert(document, YarnApplication).order == (1, 2)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**document, "id": "application_1_2\n"}, YarnApplication)
