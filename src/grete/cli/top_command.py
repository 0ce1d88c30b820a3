"""`grete top`."""

from __future__ import annotations

import argparse
import curses
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grete.cli.options import add_common_options
from grete.cli.top_screen import Room, Rows, Screen
from grete.clock import SystemClock
from grete.errors import ConfigError, GreteError
from grete.text_logs import utc_text

if TYPE_CHECKING:
    from grete.model.ids import JobId
    from grete.pages.watch import Watch

_EVERY_MS = 500
_LAST_LINES = 1_000
_KEYS: Mapping[int, str] = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_LEFT: "left",
    curses.KEY_PPAGE: "page-up",
    curses.KEY_NPAGE: "page-down",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
    10: "enter",
    13: "enter",
    27: "escape",
    127: "backspace",
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show all jobs of the home on one screen, until `q`.

    Raises:
        ConfigError: this is no terminal.
    """
    from grete.environment import grete_home
    from grete.metadata.job_index import jobs
    from grete.pages.watch import Watch

    if options.output == "json" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("grete top needs a terminal; for programs there is: grete status --watch -o json")
    home = grete_home()
    watch = Watch(lambda: jobs(home))
    watch.start()
    try:
        curses.wrapper(_show, watch)
    finally:
        watch.close()
    return 0


def _show(window: curses.window, watch: Watch) -> None:
    """Draw, wait for a key or half a second, and again."""
    curses.curs_set(0)
    curses.set_escdelay(25)
    window.timeout(_EVERY_MS)
    screen = Screen(_Rooms(watch).rows)
    while not screen.is_over:
        height, width = window.getmaxyx()
        window.erase()
        lines = screen.lines(width - 1, height, f"grete top  {utc_text(SystemClock().wall_ms())} UTC")
        for number, line in enumerate(lines):
            mark = curses.A_REVERSE if number == screen.chosen_line() else curses.A_NORMAL
            window.addstr(number, 0, line, curses.A_BOLD if number == 2 else mark)
        window.refresh()
        key = window.getch()
        if key >= 0:
            screen.press(_KEYS.get(key, chr(key) if key < 256 else ""))


class _Rooms:
    """The rows of each room, from what was seen of jobs."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._known: tuple[tuple[Room, str], float, Rows] | None = None

    def rows(self, room: Room, job: str) -> Rows:
        """See Screen."""
        from grete.pages.watch import rate_now

        found = self._watch.rows()
        if room is Room.JOBS:
            return [row | {"rate": rate_now(self._watch.samples(id_))} for id_, row in sorted(found.items())]
        id_ = next((one for one in found if one.shown == job), None)
        if id_ is None:
            return []
        if self._known is None or self._known[0] != (room, job) or time.monotonic() - self._known[1] > 1:
            rows = _tasks(id_, found[id_]) if room is Room.TASKS else _log(id_)
            self._known = (room, job), time.monotonic(), rows
        return self._known[2]


def _tasks(job: JobId, row: Mapping[str, Any]) -> Rows:
    from grete.operations import open_job

    try:
        with open_job(job) as handle:
            containers = handle.assignments()
    except GreteError:
        containers = {}
    return [
        {
            "task": one["task"],
            "container": containers.get(one["task"]),
            "partition": f"{one['system']}.{one['stream']}.{one['partition']}",
            "checkpointed": one["checkpointed"],
            "upcoming": one["upcoming"],
            "behind": one["lag"],
        }
        for one in row["lag"]["partitions"]
    ]


def _log(job: JobId) -> Rows:
    """The ends of the job's logs on this machine, by container."""
    from grete.operations import open_job
    from grete.operations.container_logs import container_logs, last_lines

    try:
        with open_job(job) as handle:
            logs = container_logs(handle)
    except GreteError as error:
        return [{"line": str(error)}]
    if not logs:
        return [{"line": "no container of this job has a log on this machine"}]
    return [
        {"line": f"[{id_}] {line}" if len(logs) > 1 else line}
        for id_, path in logs.items()
        for line in last_lines(path, _LAST_LINES)
    ]
