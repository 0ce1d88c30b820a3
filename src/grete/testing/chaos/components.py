"""Components of a job, as processes of this machine that can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from grete.launch.processes import parse_name
from grete.metadata.launches import read_launches
from grete.operations.job_handle import JobHandle

FindPids = Callable[[], Sequence[int]]


class Component:
    """A kind of process. `find` gives those that run now; `after` is done once one was killed."""

    def __init__(
        self,
        name: str,
        find: FindPids,
        after: Callable[[], None] = lambda: None,
        *,
        may_pause: bool = False,
    ) -> None:
        self.name = name
        self.may_pause = may_pause
        self._find = find
        self._after = after

    def pids(self) -> list[int]:
        """The processes that run now, sorted."""
        return sorted(pid for pid in self._find() if is_running(pid))

    def kill(self, pid: int) -> None:
        """SIGKILL, and what belongs to it: its supervisor restarts it."""
        os.kill(pid, signal.SIGKILL)
        self._after()

    def pause(self, pid: int, seconds_s: float) -> threading.Timer:
        """SIGSTOP, and SIGCONT after a while: to others it is dead, to itself no time has passed."""
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(seconds_s, _let_go_on, [pid])
        timer.start()
        return timer


def _let_go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was killed while it stood still
        os.kill(pid, signal.SIGCONT)


def coordinators(handle: JobHandle) -> list[int]:
    """The process that coordinates the job, if it runs on this machine."""
    holder = handle.election.holder()
    return [holder.pid] if holder is not None and holder.host == socket.gethostname() else []


def containers(handle: JobHandle) -> list[int]:
    """The job's containers, standby ones too."""
    names = [parse_name(record.handle) for record in read_launches(handle.stream).values()]
    return [name.pid for name in names if name is not None]


def below_containers(handle: JobHandle, word: str) -> list[int]:
    """Processes below the containers whose command holds the word: `java`, or `pyspark.worker` for the workers."""
    return [pid for one in containers(handle) for pid in descendants(one) if word in command_of(pid)]


def descendants(pid: int) -> Iterator[int]:
    """Children, their children and so on, as far as they still run. Linux lists them by the thread that made them."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (thread / "children").read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child)


def command_of(pid: int) -> str:
    """Its command line, empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """Whether it runs and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (OSError, IndexError):
        return False


def broker(pid_file: Path, start: Sequence[str], *, down_s: float = 20.0) -> Component:
    """A broker that is down for a while and started again, then given twice the time (as the original did)."""

    def find() -> list[int]:
        text = pid_file.read_text(encoding="ascii").strip() if pid_file.exists() else ""
        return [int(text)] if text.isdigit() else []

    def start_again() -> None:
        time.sleep(down_s)
        subprocess.run(start, check=True)  # noqa: S603 - the operator's own command
        time.sleep(2 * down_s)

    return Component("broker", find, start_again)
