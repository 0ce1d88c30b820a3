"""`python -m grete_workbench.documents.commands` prints docs/commands.md from the parsers of the command line.

The words are put together here and not by `ArgumentParser.format_help`, which Python's versions lay out differently.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from grete.cli.main import COMMANDS, parser_of

_HEAD = """\
# Commands

<!-- Made by `python -m grete_workbench.documents.commands`; change src/grete/cli, not this file. -->

Every command of `grete` with its arguments. `grete COMMAND --help` prints the same.
[operating.md](operating.md#commands) says when a command is needed, [Exit codes](operating.md#exit-codes) what it
ends with, and [migrating.md](migrating.md#moving-a-samza-job) which commands have the names of Samza's scripts.

## Arguments of all commands

`--home`, `--debug` and `--version` stand before the command; the first two may stand behind it as well. A command
that has `--config`, `--job` or `--output` in its first line takes them as they are described here.
"""


def document() -> str:
    """The whole text, ending in a line break."""
    shared = _visible(_below(parser_of("status"))["status"].parser)
    parts = [_HEAD, _table([*_visible(parser_of(None)), *shared])]
    for name in COMMANDS:
        parts += _sections(_below(parser_of(name))[name], {_identity(one) for one in shared}, level=2)
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


class _Command(NamedTuple):
    parser: argparse.ArgumentParser
    summary: str


def _sections(command: _Command, shared: Collection[Identity], level: int) -> Iterator[str]:
    """A command, and those below it."""
    parser = command.parser
    yield f"{'#' * level} {parser.prog}"
    if command.summary:
        yield f"{command.summary[0].upper()}{command.summary[1:].rstrip('.')}."
    if not (below := _below(parser)):
        yield f"```text\n{_usage(parser)}\n```"
    yield _table([one for one in _visible(parser) if _identity(one) not in shared])
    for one in below.values():
        yield from _sections(one, shared, level + 1)


def _below(parser: argparse.ArgumentParser) -> Mapping[str, _Command]:
    return {
        name: _Command(
            found, next((one.help or "" for one in group._choices_actions if one.dest == name), "")
        )
        for group in parser._actions
        if isinstance(group, argparse._SubParsersAction)
        for name, found in group.choices.items()
    }


def _visible(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    return [
        action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]


Identity = tuple[tuple[str, ...], str | None]


def _identity(action: argparse.Action) -> Identity:
    return tuple(action.option_strings), action.help


def _usage(parser: argparse.ArgumentParser) -> str:
    words = [parser.prog]
    exclusive = {
        id(action): group for group in parser._mutually_exclusive_groups for action in group._group_actions
    }
    told: set[int] = set()
    for action in sorted(_visible(parser), key=lambda one: not one.option_strings):
        group = exclusive.get(id(action))
        if group is None:
            words.append(_one(action))
        elif id(group) not in told:
            told.add(id(group))
            inside = [
                _shape(one)[1:-1] if not one.option_strings and one.nargs == "?" else _shape(one)
                for one in group._group_actions
                if one.help != argparse.SUPPRESS
            ]
            alternatives = " | ".join(inside)
            words.append(f"({alternatives})" if group.required else f"[{alternatives}]")
    return _folded(words)


def _folded(words: Sequence[str], width: int = 100) -> str:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append(" " * (len(words[0]) + 1) + word)
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def _one(action: argparse.Action) -> str:
    shape = _shape(action)
    return shape if action.required or not action.option_strings else f"[{shape}]"


def _shape(action: argparse.Action) -> str:
    """An argument as it is written."""
    value = _value(action)
    if action.option_strings:
        name = next((one for one in action.option_strings if one.startswith("--")), action.option_strings[0])
        return f"{name} {value}" if value else name
    return value


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        name = action.metavar
    elif action.choices is not None:
        name = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        name = action.dest.upper().replace("_", "-")
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name.removesuffix(' ...')} ..."}.get(
        str(action.nargs), name
    )


def _table(actions: Sequence[argparse.Action]) -> str:
    if not actions:
        return ""
    rows = [f"| {_names(action)} | {_cell(_meaning(action))} |" for action in actions]
    return "\n".join(["| argument | meaning |", "|---|---|", *rows])


def _names(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        return f"`{_cell(value)}`"
    names = action.option_strings
    return ", ".join(
        f"`{_cell(f'{name} {value}' if value and name == names[-1] else name)}`" for name in names
    )


def _meaning(action: argparse.Action) -> str:
    words = (action.help or "") % {**vars(action), "prog": "grete"}
    default = action.default
    is_told = any(said in words for said in ("default", f"({default})"))
    is_told |= default in ("", argparse.SUPPRESS) or isinstance(default, bool)
    if isinstance(default, str | int | float) and not is_told:
        words += f" (default: {default})"
    if action.required and action.option_strings:
        words += " (required)"
    return words.strip()


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    sys.stdout.write(document())
