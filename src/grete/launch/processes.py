"""A process of this machine that may not be our child: found again by what cannot be mistaken, watched by a pidfd."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PID, _TICKS = re.compile("[0-9]{1,9}"), re.compile("[0-9]{1,18}")  # more than Linux has of either
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SET_UP_WITHIN_S, _LOOK_EVERY_S = 1.0, 0.001


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A process of one boot of one machine: process ids are reused, their start times with them are not."""

    boot: str
    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.boot}/{self.pid}/{self.start_ticks}"


def name_of(pid: int) -> ProcessName | None:
    """The name of a running process, None when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return ProcessName(_BOOT_ID.read_text(encoding="ascii").strip(), pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def children_of(pid: int) -> list[int]:
    """The processes that a running process has started and that run, without those of their own."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            if int(stat.read_bytes().rpartition(b")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def parse_name(text: str) -> ProcessName | None:
    """Read `str(ProcessName)`, None when it is something else."""
    parts = text.split("/")
    if len(parts) != 3 or not _PID.fullmatch(parts[1]) or not _TICKS.fullmatch(parts[2]):
        return None
    return ProcessName(parts[0], int(parts[1]), int(parts[2]))


def is_running(text: str) -> bool:
    """Whether the process of this name (`str(ProcessName)`) runs, on this machine."""
    name = parse_name(text)
    return name is not None and name_of(name.pid) == name


class OtherProcess:
    """A process that another one started. Signals can not reach another process that got its id."""

    def __init__(self, name: ProcessName) -> None:
        """Open it.

        Raises:
            ProcessLookupError: it does not run any more.
        """
        self.pid = name.pid
        self._descriptor = os.pidfd_open(name.pid)
        if name_of(name.pid) != name:  # asked after opening: from here on the descriptor is that process
            os.close(self._descriptor)
            raise ProcessLookupError(f"process {name.pid} is another one now")

    def environment(self) -> dict[str, str]:
        """The environment it was started with; empty where that cannot be seen, as with another user's process.

        Read after the descriptor was opened and compared again, so it is that process's and no later one's. For some
        milliseconds after its start Linux shows none: whoever started it goes on before its program is set up.
        """
        until_s = time.monotonic() + _SET_UP_WITHIN_S
        try:
            while not (data := Path(f"/proc/{self.pid}/environ").read_bytes()):
                if not self.is_running() or time.monotonic() > until_s:
                    return {}
                time.sleep(_LOOK_EVERY_S)
        except OSError:
            return {}
        if not self.is_running():
            return {}
        return dict(entry.split("=", 1) for entry in os.fsdecode(data).split("\0") if "=" in entry)

    def is_running(self) -> bool:
        """Whether it has not ended."""
        ended = (
            select.poll()
        )  # select() takes no descriptor above 1,023, and a coordinator may have more open
        ended.register(self._descriptor, select.POLLIN)
        return not ended.poll(0)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def fileno(self) -> int:
        """A descriptor that is readable once it has ended."""
        return self._descriptor

    def close(self) -> None:
        """Release the descriptor. A second time nothing: its number may be another file's by then."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
