"""The processes of a run of tests, wherever they hang in the process tree, and what they are doing.

Containers live in sessions of their own and outlive who started them, as they should; so a run's processes are known
by a variable in their environment, which every child inherits, and not by their parents.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RUN = "GRETE_TEST_RUN"
"""Names the run in the environment of all its processes."""
CURRENT_TEST = "PYTEST_CURRENT_TEST"
"""pytest's own: the test during which a process was started."""
_LOOK_EVERY_S = 0.05
_LOOKS, _LOOK_AGAIN_S = 10, 0.002
_OF_THE_KERNEL = 0x0020_0000
_DUMP_S = 20
_LONGEST_DUMP = 8_000
_JVMS = {"Spark": "deploy.SparkSubmit", "brokers": "kafka.Kafka", "real Samza": "samza"}
"""A word of the command line of each kind."""


@dataclass(frozen=True, slots=True)
class RunProcess:
    """One process of the run. `test` is the node id of the test that started it, "" where none did."""

    pid: int
    parent: int
    command: str
    test: str

    @property
    def is_orphan(self) -> bool:
        """Its parent has ended."""
        return self.parent == 1


def of_run(run: str) -> list[RunProcess]:
    """Every living process of the run but ourselves; zombies hold nothing and do not count."""
    found = (_read(int(entry.name), run) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [process for process in found if process is not None and process.pid != os.getpid()]


def _read(pid: int, run: str) -> RunProcess | None:
    try:
        environment = _environment(pid)
        if f"{RUN}={run}\0".encode() not in environment + b"\0":
            return None
        state, parent = _stat(pid)[:2]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # ended meanwhile, or another user's
        return None
    if state == "Z":
        return None
    named = [word for word in environment.split(b"\0") if word.startswith(f"{CURRENT_TEST}=".encode())]
    test = named[0].decode(errors="replace").partition("=")[2].rpartition(" ")[0] if named else ""
    return RunProcess(pid, int(parent), command.strip(), test)


def _environment(pid: int) -> bytes:
    """What it was started with. A program that has only just begun has none for a moment, though who started it goes
    on already: a test that left a process was seen to leave nothing.
    """
    for _ in range(_LOOKS):
        if environment := Path(f"/proc/{pid}/environ").read_bytes():
            return environment
        state, _, *rest = _stat(pid)
        if state == "Z" or int(rest[4]) & _OF_THE_KERNEL:
            break
        time.sleep(_LOOK_AGAIN_S)
    return b""


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, terminal, its group, flags, and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class JvmCount:
    """The JVMs of a run, by what they run. One that lives shorter than the time between two looks is missed."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._seen: dict[int, tuple[str, str, float]] = {}

    def look(self) -> None:
        """Count those that run now and were not there at the last look."""
        processes = {process.pid: process for process in of_run(self._run)}
        for process in processes.values():
            if Path(process.command.split(" ", 1)[0]).name == "java":
                kinds = [name for name, word in _JVMS.items() if word in process.command]
                kind = kinds[0] if kinds else "others"
                _, test, before_s = self._seen.get(process.pid, ("", "", 0.0))
                test = test or _test_of(process, processes)
                self._seen[process.pid] = (kind, test, max(before_s, _processor_s(process.pid)))

    def lines(self) -> list[str]:
        """Kind, processor seconds at the last look and test of each, the dearest first."""
        dearest = sorted(self._seen.values(), key=lambda one: -one[2])
        return [f"{kind}\t{seconds:.1f}\t{test}\n" for kind, test, seconds in dearest]

    def __str__(self) -> str:
        numbers = Counter(kind for kind, _, _ in self._seen.values())
        kinds = ", ".join(f"{numbers[kind]} {kind}" for kind in (*_JVMS, "others"))
        seconds = sum(seconds for _, _, seconds in self._seen.values())
        return f"{numbers.total()} JVMs ({kinds}), {seconds:.0f} s of a processor"


def _test_of(process: RunProcess, processes: Mapping[int, RunProcess]) -> str:
    """Its own, or that of the nearest process above it that says one: a container's environment is not its test's."""
    seen: RunProcess | None = process
    while seen is not None and not seen.test:
        seen = processes.get(seen.parent)
    return "" if seen is None else seen.test


def _processor_s(pid: int) -> float:
    try:
        user, system = _stat(pid)[11:13]
    except OSError:  # ended meanwhile
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def end(processes: Iterable[RunProcess], *, within_s: float = 10.0) -> None:
    """SIGKILL, and wait until they are gone or `within_s` are over."""
    left = {process.pid for process in processes}
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + within_s
    while left and time.monotonic() < deadline_s:
        left = {pid for pid in left if _lives(pid)}
        time.sleep(_LOOK_EVERY_S if left else 0)


def _lives(pid: int) -> bool:
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False


def stacks(processes: Sequence[RunProcess]) -> str:
    """Stacks of every thread of these processes, by py-spy and jcmd."""
    return "\n".join(f"--- {process.pid} {process.command[:200]}\n{_stack(process)}" for process in processes)


def _stack(process: RunProcess) -> str:
    program = Path(process.command.split(" ", 1)[0]).name
    if program.startswith("python"):
        command = [str(Path(sys.executable).with_name("py-spy")), "dump", "--nonblocking", "--pid"]
        return _output([*command, str(process.pid)])
    if program == "java" and shutil.which("jcmd"):
        return _output(["jcmd", str(process.pid), "Thread.print"])
    return "(no stack of this program)"


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DUMP_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"
    return (done.stdout + done.stderr)[:_LONGEST_DUMP]
