"""Run the tests side by side, end what hangs, leave nothing behind.

    python -m tests.harness [--workers 3] [--again] [--beside 10] [--times 20] [PYTEST WORDS ...]

`--again` runs what failed once more, alone and on fresh servers. What fails again fails the run. What passes is
printed under FLAKY with its first failure and written to `flaky.log`; three or more of them fail the run as well.
`--beside` keeps so many processes busy meanwhile, with limits as much longer. `--times` repeats the run.
The report folder `.test-run` then holds `failed.jsonl`, `durations.tsv`, `orphans.tsv`, `jvms.tsv` and `flaky.log`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.harness import guard, plugin, processes, servers

from grete.testing.waiting import PATIENCE

REPORT = Path(".test-run")
FLAKY_FAIL = 3
"""So many tests that failed once and passed then fail the run: that is no accident any more."""
_AGAIN_AT_MOST = 20
"""With more failures than this something is broken, and to run them alone would only cost time."""
_STILL_S = 3_700.0 if "GRETE_NIGHTLY" in os.environ else 900.0
"""A run of which nothing was heard for so long hangs: by night a campaign alone may take an hour."""
_LOOK_EVERY_S = 1.0
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Images of containers like to set it. Each of a run's thousands of Pythons would compile what it imports: 0.3 s."""
_FAILED = 1


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its name in the environment of all its processes, and its folder for everything temporary."""

    name: str
    folder: Path
    report: Path

    def environment(self, servers_name: str) -> dict[str, str]:
        """Additions to our environment for its processes."""
        temporary, own_servers = self.folder / "tmp", self.folder / servers_name
        for folder in (temporary, own_servers):
            folder.mkdir(exist_ok=True)
        ours = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        ours.pop(_NO_BYTECODE, None)
        return {
            **ours,
            processes.RUN: self.name,
            servers.FOLDER: str(own_servers),
            plugin.REPORT: str(self.report),
            "TMPDIR": str(temporary),
        }


@contextmanager
def guarded_run(report: Path) -> Iterator[Run]:
    """A run whose processes and folder are gone afterwards, also when we are killed."""
    folder = Path(tempfile.mkdtemp(prefix="grete-test-"))
    folder.chmod(0o711)  # PostgreSQL does not run as root: it has a user and a folder of its own in there
    run = Run(uuid.uuid4().hex[:12], folder, report)
    watch = [sys.executable, "-m", guard.__name__, run.name, str(run.folder)]
    watching = subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield run
    finally:
        left = guard.clean(run.name, run.folder)
        assert watching.stdin is not None
        watching.stdin.close()
        watching.wait()
    folders = [run.folder] if run.folder.exists() else []
    print(f"left behind: {left} processes, {len(folders)} folders")
    if left or folders:
        raise SystemExit(f"{run.folder} or processes with {processes.RUN}={run.name} could not be ended")


def run_pytest(run: Run, words: Sequence[str], *, servers_name: str, environment: Mapping[str, str]) -> int:
    """pytest with these words; ended with the stacks of all its processes when nothing is heard of it any more."""
    heard = run.report / "durations.tsv"
    heard.touch()
    command = [sys.executable, "-m", "pytest", f"--basetemp={run.folder / servers_name}-t", *words]
    tests = subprocess.Popen(
        command, env={**run.environment(servers_name), **environment}, stdin=subprocess.DEVNULL
    )
    since, size, jvms = time.monotonic(), 0, processes.JvmCount(run.name)
    while tests.poll() is None:
        time.sleep(_LOOK_EVERY_S)
        jvms.look()
        if (now := heard.stat().st_size) != size:
            since, size = time.monotonic(), now
        elif time.monotonic() - since > _STILL_S:
            print(f"\nnothing was heard of the tests for {_STILL_S:g} s; this is what they are doing:")
            print(processes.stacks(processes.of_run(run.name)), flush=True)
            tests.kill()
            tests.wait()
            return _FAILED
    (run.report / "jvms.tsv").write_text("".join(jvms.lines()))
    print(f"started {jvms}", flush=True)
    return tests.returncode


def failures(report: Path) -> dict[str, str]:
    """Tests that failed, each with what its first failure said."""
    path = report / "failed.jsonl"
    found: dict[str, str] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        failure = json.loads(line)
        found.setdefault(failure["test"], f"({failure['when']})\n{failure['text']}\n{failure['output']}")
    return found


def judge(first: Mapping[str, str], again: Mapping[str, str], report: Path) -> int:
    """Print and keep what passed the second time; the exit code of the run."""
    flaky = {test: text for test, text in first.items() if test not in again}
    lines = [f"{test} {text}\n" for test, text in flaky.items()]
    (report / "flaky.log").write_text("\n".join(lines))
    if flaky:
        print(f"\n{'=' * 30} FLAKY: {len(flaky)} failed once and passed alone {'=' * 30}")
        print("\n".join(lines))
    if again:
        print(f"{len(again)} failed twice: {', '.join(again)}")
        return _FAILED
    if len(flaky) >= FLAKY_FAIL:
        print(f"{len(flaky)} flaky tests are too many: {FLAKY_FAIL} fail the run")
        return _FAILED
    return 0


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    loop = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(loop, stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def machine_cpu_s() -> float:
    """Seconds that all processors together have computed since the machine began."""
    user, nice, system, _idle, _wait, *interrupts = (
        Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    )
    return sum(map(int, (user, nice, system, *interrupts))) / os.sysconf("SC_CLK_TCK")


def side_by_side(workers: int) -> list[str]:
    """pytest's words for so many workers; which test is whose is said by `tests.harness.plugin`."""
    return ["-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder"] if workers > 1 else []


def run_once(options: argparse.Namespace, words: Sequence[str]) -> int:
    """One run, with its second chance."""
    report = REPORT.resolve()
    shutil.rmtree(report, ignore_errors=True)
    report.mkdir()
    # side by side on two cores waits for twice as long were sometimes too short; what comes sooner costs nothing
    alone = 3 if os.environ.get("CI") or "GRETE_NIGHTLY" in os.environ else 1
    needed = str(max(alone, 1 + options.beside / (os.cpu_count() or 1)))
    patience = {PATIENCE: os.environ.get(PATIENCE, needed)}
    with ExitStack() as stack:
        run = stack.enter_context(guarded_run(report))
        stack.enter_context(busy(options.beside))
        wanted = [*side_by_side(options.workers), *words]
        code = run_pytest(run, wanted, servers_name="servers", environment=patience)
        first = failures(report)
        if code != _FAILED or not options.again or not 0 < len(first) <= _AGAIN_AT_MOST:
            return code
        processes.end(processes.of_run(run.name))
        (report / "failed.jsonl").rename(report / "failed-first.jsonl")
        print(f"\n{len(first)} failed; once more, alone and on fresh servers", flush=True)
        code = run_pytest(run, ["-q", *first], servers_name="servers-again", environment=patience)
        if code not in (0, _FAILED):
            return code
        return judge(first, failures(report), report)


def main(arguments: Sequence[str]) -> int:
    """The command of the module's head."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness", description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--beside", type=int, default=0)
    parser.add_argument("--times", type=int, default=1)
    options, words = parser.parse_known_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_FAILED))  # in order, as after Ctrl-C
    for number in range(options.times):
        began_s, computed_s = time.monotonic(), machine_cpu_s()
        code = run_once(options, words)
        took_s, computed_s = time.monotonic() - began_s, machine_cpu_s() - computed_s
        share = computed_s / (took_s * (os.cpu_count() or 1))
        what = f"run {number + 1} of {options.times}"
        print(f"{what}: exit {code}, {took_s:.0f} s, processors busy {share:.0%}", flush=True)
        if code != 0:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
