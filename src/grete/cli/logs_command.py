"""`grete logs`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from grete.cli.options import add_job_options, count, given_settings, named_job, opened_job
from grete.cli.output import print_json_line
from grete.errors import GreteError, JobError, JobNotFound
from grete.suggestions import or_one_of

_POLL_S = 0.2
_LONGEST = 65_536
"""Characters of one line that are shown: a log may hold anything."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_job_options(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is written")
    parser.add_argument("--container", metavar="ID", help="of this one only")
    parser.add_argument(
        "-n", "--lines", type=count, default=200, metavar="N", help="the last N lines of each container"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the ends of the containers' logs, and what comes."""
    logs = [_FollowedLog(path) for path in _paths(_folder(options), options.container)]
    several = len(logs) > 1
    for log in logs:
        for line in log.last(options.lines):
            _show(log, line, options, several=several)
    while options.follow:
        sys.stdout.flush()
        time.sleep(_POLL_S)
        for log in logs:
            for line in log.new():
                _show(log, line, options, several=several)
    return 0


def _folder(options: argparse.Namespace) -> Path:
    """Where the job's logs are; in its usual place when the stream does not answer: logs are wanted then."""
    from grete.environment import grete_home
    from grete.metadata.job_index import where_submitted

    try:
        with opened_job(options) as handle:
            return handle.state_directory / "logs"
    except JobNotFound:
        raise
    except GreteError as error:
        if not error.may_pass:
            raise
        settings, home = given_settings(options), grete_home()
        job = named_job(options, settings)
        return (settings or where_submitted(job, home)).job.state_directory(job, home) / "logs"


def _paths(folder: Path, container: str | None) -> list[Path]:
    found = there = sorted(folder.glob("container-*.log"))
    if container is not None:
        found = [path for path in there if path == folder / f"container-{container}.log"]
    if there and not found:
        known = [path.stem.removeprefix("container-") for path in there]
        meant = or_one_of(str(container), known, "there are those of")
        raise JobError(f"there are no logs of container {container!r} in {folder}{meant}")
    if not found:
        which = "" if container is None else f" of container {container!r}"
        raise JobError(
            f"there are no logs{which} in {folder}: no container was started on this machine, or with "
            f"job.launcher=thread, where they are the coordinator's own"
        )
    return found


class _FollowedLog:
    """One container's log. A new one may take its place while it is followed."""

    def __init__(self, path: Path) -> None:
        self.container = path.stem.removeprefix("container-")
        self._path = path
        self._file = path.open("rb")
        self._rest = b""

    def last(self, lines: int) -> list[bytes]:
        """The last lines; what is written after them is new."""
        return list(deque(self.new(), maxlen=lines))

    def new(self) -> Iterator[bytes]:
        """Whole lines that were written since the last call."""
        yield from self._read()
        if self._path.exists() and self._path.stat().st_ino != self._inode():
            self._file.close()
            self._file = self._path.open("rb")
            yield from self._read()

    def _inode(self) -> int:
        return os.fstat(self._file.fileno()).st_ino

    def _read(self) -> Iterator[bytes]:
        for line in self._file:
            if not line.endswith(b"\n"):
                self._rest += line
                continue
            yield (self._rest + line).rstrip(b"\n")
            self._rest = b""


def _show(log: _FollowedLog, line: bytes, options: argparse.Namespace, *, several: bool) -> None:
    text = line[:_LONGEST].decode("utf-8", "replace")
    if options.output == "json":
        print_json_line({"container": log.container, "line": text})
        return
    shown = "".join(one if one.isprintable() or one == "\t" else ascii(one)[1:-1] for one in text)
    print(f"[{log.container}] {shown}" if several else shown)
