"""`grete dead-letters list|replay`."""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from grete.cli.options import add_job_options, count, opened_job
from grete.cli.output import print_json, print_json_line, print_table
from grete.errors import ConfigError
from grete.text_logs import utc_text

if TYPE_CHECKING:
    from grete.operations.dead_letters import Letter, Replay

_PLACE = re.compile(r"(\d{1,9}):(\d{1,18})")


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    list_ = actions.add_parser("list", help="what was set aside, and why")
    add_job_options(list_)
    list_.add_argument("-n", type=count, default=100, metavar="N", help="the last N of each partition")
    list_.set_defaults(run=_list)
    replay = actions.add_parser("replay", help="append messages to the inputs that they came from")
    add_job_options(replay)
    which = replay.add_mutually_exclusive_group(required=True)
    which.add_argument("--number", action="append", metavar="P:OFFSET", help="this one, as `list` shows it")
    which.add_argument("--all", action="store_true", help="every one that is there")
    replay.add_argument("--again", action="store_true", help="those too that were replayed before")
    replay.add_argument("--execute", action="store_true", help="do it; without, show what would be appended")
    replay.set_defaults(run=_replay)


def _list(options: argparse.Namespace) -> int:
    from grete.operations.dead_letters import open_dead_letters

    with opened_job(options) as handle, open_dead_letters(handle) as opened:
        letters = list(opened.last(options.n))
    if options.output == "json":
        for letter in letters:
            print_json_line(_document(letter))
        return 0
    rows = [
        (
            *(one.number, "yes" if one.is_replayed else "-", one.task, str(one.ssp), one.offset),
            *(utc_text(one.timestamp_ms), one.error[:200]),
        )
        for one in letters
    ]
    print_table(("number", "replayed", "task", "input", "offset", "message of", "error"), rows)
    return 0


def _replay(options: argparse.Namespace) -> int:
    from grete.operations.dead_letters import open_dead_letters

    wanted = None if options.all else _wanted(options.number)
    with opened_job(options) as handle, open_dead_letters(handle) as opened:
        plan = opened.plan_replay(wanted, again=options.again)
        if options.execute:
            opened.execute_replay(plan)
    _print_replay(options, plan)
    return 0


def _print_replay(options: argparse.Namespace, plan: Replay) -> None:
    counts = {str(input_): len(letters) for input_, letters in plan.by_input.items()}
    before = len(plan.found) - sum(counts.values())
    if options.output == "json":
        print_json({"executed": options.execute, "appended": counts, "replayed_before": before})
        return
    for input_, messages in sorted(counts.items()):
        done = "appended" if options.execute else "would be appended; --execute does it"
        print(f"{input_}: {messages} messages {done}")
    if before:
        print(f"{before} were replayed before; --again appends them once more")
    if not plan.found:
        print("there are no dead letters")


def _wanted(numbers: Iterable[str]) -> set[str]:
    wrong = [number for number in numbers if not _PLACE.fullmatch(number)]
    if wrong:
        raise ConfigError(f"--number {wrong[0]!r}: write PARTITION:OFFSET, as `grete dead-letters list` does")
    return set(numbers)


def _document(letter: Letter) -> dict[str, object]:
    return {
        "number": letter.number,
        "replayed": letter.is_replayed,
        "task": letter.task,
        "ssp": str(letter.ssp),
        "offset": letter.offset,
        "error": letter.error,
        "timestamp_ms": letter.timestamp_ms,
        "key_base64": None if letter.key is None else base64.b64encode(letter.key).decode(),
        "value_base64": None if letter.value is None else base64.b64encode(letter.value).decode(),
    }
