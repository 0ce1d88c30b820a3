"""Every command of ours that a document or a message of the product advises is one that the command line takes."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.cli import main as command_line
from grete.migration.spark_state import READING_STATE

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
MODULES = sorted(path for path in ROOT.glob("src/grete/**/*.py") if "testing" not in path.parts)
COMMAND = re.compile(rf"\bgrete ((?:{'|'.join(command_line.COMMANDS)})(?![\w.-])[^`;,()\"|&\n]*)")
OWN_SENTENCE = re.compile(r"\.(?: |$)| (?:or|and|which|ends|with|shows|says|in|lists|has|adopts) ")
"""Where prose goes on behind a command."""
NAMES = {"job coordinator"}
"""What follows the word grete in a name, which is no command."""


def parser_of(command: str, sub: str | None) -> tuple[argparse.ArgumentParser, frozenset[str]]:
    """The parser of a command, or of its sub-command, and the sub-commands that the command has."""
    top = command_line.parser_of(command)
    found = subparsers(top)[command]
    below = subparsers(found)
    return below.get(sub or "", found), frozenset(below)


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    choices = [one.choices for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(choices[0]) if choices else {}


def text_of(node: ast.AST) -> str | None:
    """A string as it is written, with X for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
    return None


def strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if (text := text_of(node)) is not None and "grete " in text:
            yield text


def advised(text: str) -> list[str]:
    joined = text.replace("\\\n", " ")
    found = (OWN_SENTENCE.split(f"{one[1]} ")[0].strip() for one in COMMAND.finditer(joined))
    return [command for command in found if command not in NAMES]


def problems(command: str) -> list[str]:
    """What the command line would refuse of it; arguments that are left out, and values, are not looked at."""
    words = command.split()
    named = words[1] if len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]) else None
    parser, below = parser_of(words[0], named)
    found = []
    is_prose = len(words) > 2 and re.fullmatch(r"[a-z]+", words[2]) is not None
    if below and named is not None and named not in below and not is_prose:
        found.append(f"{words[0]} has no {named}")
    known = set(parser._option_string_actions) | {"--home", "--debug"}
    flags = [word.partition("=")[0].rstrip(".:'") for word in words if re.match(r"--[a-z]|-[a-z]$", word)]
    return found + [f"{command}: no {flag}" for flag in flags if flag not in known]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_advise_commands_that_there_are(path: Path) -> None:
    commands = advised(path.read_text())
    assert [problem for command in commands for problem in problems(command)] == []


def test_messages_advise_commands_that_there_are() -> None:
    commands = {command for path in MODULES for text in strings(path) for command in advised(text)}
    assert len(commands) > 60, "messages do advise commands"
    assert sorted(problem for command in commands for problem in problems(command)) == []


def test_a_command_that_is_not_there_would_be_seen() -> None:
    assert problems("checkpoint rewnd --execute") == [
        "checkpoint has no rewnd",
        "checkpoint rewnd --execute: no --execute",
    ]
    assert problems("status --joob x") == ["status --joob x: no --joob"]


def test_the_document_and_the_message_on_reading_state_say_the_same() -> None:
    document = (ROOT / "docs/migrating.md").read_text()
    assert all(statement in document for statement in READING_STATE.split("; "))
