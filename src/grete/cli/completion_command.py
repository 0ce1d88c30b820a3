"""`grete completion`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

_INSTALL = {
    "bash": "grete completion bash > ~/.local/share/bash-completion/completions/grete",
    "zsh": "grete completion zsh > ~/.zfunc/_grete, in a folder that is on your fpath",
    "fish": "grete completion fish > ~/.config/fish/completions/grete.fish",
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    lines = "; ".join(_INSTALL.values())
    parser.add_argument("shell", choices=tuple(_INSTALL), help=f"for which shell; install it with {lines}")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script that completes commands, options, their choices and files."""
    import shtab

    from grete.cli.main import whole_parser

    parser = whole_parser()
    for action in _actions(parser):
        if action.metavar in ("FILE", "DIR"):
            kind = shtab.FILE if action.metavar == "FILE" else shtab.DIRECTORY
            action.complete = kind  # type: ignore[attr-defined] # where shtab looks
    print(shtab.complete(parser, shell=options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of every command."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _actions(one)
