"""The chaos tool: what it kills, what it says, and that it would notice a loss."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.chaos.__main__ import main
from grete.testing.chaos.components import Component, broker, command_of, descendants, is_running
from grete.testing.chaos.monkey import Monkey
from grete.testing.chaos.own_job import KEYS, OwnJob
from grete.testing.waiting import eventually

HEADS = 2
"""The first coin of this seed is heads: to be paused."""
SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen(SLEEP, stdout=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_one_running_process_is_killed_a_round_until_none_is_left(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    killed: list[str] = []
    component = Component("sleeper", lambda: [p.pid for p in sleepers], lambda: killed.append("after"))
    monkey = Monkey([component, Component("nobody", list)], seed=1, clock=SystemClock())
    for left in (2, 1, 0):
        assert monkey.strike() is not None
        sleepers[[p.pid for p in sleepers].index(monkey.kills[-1].pid)].wait()
        assert sum(p.poll() is None for p in sleepers) == left
    assert monkey.strike() is None
    assert (len(monkey.kills), killed) == (3, ["after"] * 3)


def test_a_paused_process_stands_still_and_goes_on(sleepers: list[subprocess.Popen[bytes]]) -> None:
    pid = sleepers[0].pid
    timer = Component("sleeper", lambda: [pid]).pause(pid, 3600)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    timer.cancel()
    timer.function(*timer.args)
    assert os.WIFCONTINUED(os.waitpid(pid, os.WCONTINUED)[1])


def test_some_of_those_that_may_be_paused_are_and_are_not_killed(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    timers: list[threading.Timer] = []

    class Watched(Component):
        def pause(self, pid: int, seconds_s: float) -> threading.Timer:
            timers.append(super().pause(pid, seconds_s))
            return timers[-1]

    component = Watched("sleeper", lambda: [p.pid for p in sleepers], may_pause=True)
    monkey = Monkey([component], seed=HEADS, clock=SystemClock(), pause_s=3600)
    struck = monkey.strike()
    assert struck is not None
    assert os.WIFSTOPPED(os.waitpid(struck.pid, os.WUNTRACED)[1])
    for timer in timers:
        timer.cancel()
        timer.function(*timer.args)
    assert os.WIFCONTINUED(os.waitpid(struck.pid, os.WCONTINUED)[1])
    monkey.wait()
    assert [p.poll() for p in sleepers] == [None] * 3


def test_a_seed_picks_the_same_victims(sleepers: list[subprocess.Popen[bytes]]) -> None:
    def victims(seed: int) -> list[int]:
        class Spared(Component):
            def kill(self, pid: int) -> None:
                """Only noted."""

        monkey = Monkey([Spared("a", lambda: [p.pid for p in sleepers])], seed=seed, clock=SystemClock())
        return [kill.pid for kill in (monkey.strike() for _ in range(20)) if kill is not None]

    assert victims(3) == victims(3) != victims(4)


def test_processes_are_found_below_others_by_their_command(tmp_path: Path) -> None:
    inner = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()", "a-word"]
    outer = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({inner!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert outer.stdin is not None
    assert outer.stdout is not None
    outer.stdout.readline()
    [child] = [pid for pid in descendants(outer.pid) if "a-word" in command_of(pid)]
    assert is_running(child)
    outer.stdin.close()
    outer.wait()
    outer.stdout.close()
    assert not is_running(child)
    assert command_of(child) == ""


def test_a_broker_is_started_again_by_its_command(
    tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    pid_file, started = tmp_path / "pid", tmp_path / "started"
    component = broker(pid_file, ["touch", str(started)], down_s=0)
    assert component.pids() == []
    pid_file.write_text(f"{sleepers[0].pid}\n")
    assert component.pids() == [sleepers[0].pid]
    component.kill(sleepers[0].pid)
    assert sleepers[0].wait() == -9
    assert started.exists()


def own_job_with(home: Path, counts: dict[int, list[int]]) -> OwnJob:
    job = OwnJob(home)
    job.send(KEYS * 2)
    with_counts = [(f"key{n}", c) for n in range(KEYS) for c in counts.get(n, [1, 2])]
    local = LocalSystem(home / "local", SystemClock())
    local.create_stream(StreamSpec("chaos-out", 1))
    local.append("chaos-out", [Message(key.encode(), orjson.dumps(count), 1) for key, count in with_counts])
    local.close()
    return job


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ({}, None),
        ({7: [1]}, "key7: 2 records, 1 lost [2], 0 done twice"),
        ({7: [1, 1, 2]}, "key7: 2 records, 0 lost [], 1 done twice"),
        ({7: [2, 1]}, "key7: 2 records, out of order"),
        ({7: []}, "key7: 2 records, 2 lost [1, 2], 0 done twice"),
    ],
)
def test_a_loss_a_repetition_and_a_wrong_order_are_noticed(
    tmp_path: Path, counts: dict[int, list[int]], problem: str | None
) -> None:
    job = own_job_with(tmp_path, counts)
    assert list(job.problems()) == ([] if problem is None else [problem])
    job.close()


def test_a_job_is_waited_for_as_long_as_it_goes_on(tmp_path: Path) -> None:
    """At high load, with a minute's pause after a container has failed often, it may need longer than a guess."""
    job = own_job_with(tmp_path, {})
    assert job.wait_until_counted(KEYS * 2, 0.0)
    assert not job.wait_until_counted(KEYS * 2 + 1, 0.0), "nothing is counted any more"
    job.close()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--kill-container"], "--job"),
        (["--job", "j", "--kill-coordinator"], "--restart"),
        (["--kill-broker"], "--broker-pid-file"),
        (["--own-job"], "--rounds"),
    ],
)
def test_a_missing_setting_is_named_and_ends_with_code_1(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert problem in capsys.readouterr().err


def test_without_anything_to_kill_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "--kill-container" in capsys.readouterr().out


def test_a_job_that_is_not_there_is_said(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = ["--log-file", str(tmp_path / "log")]
    assert main(["--job", "nothing", "--kill-container", "--rounds", "1", *log]) == 1
    assert "there is no job nothing" in capsys.readouterr().err


CHILD_OF_A_THREAD = """
import subprocess, sys, threading
started, ended = threading.Event(), threading.Event()

def start():
    with subprocess.Popen(["sleep", "600"]) as child:
        started.set()
        ended.wait()
        child.kill()

threading.Thread(target=start).start()
started.wait()
print("up", flush=True)
sys.stdin.read()
ended.set()
"""


def test_what_another_thread_has_started_is_found_as_well() -> None:
    """As the JVM starts the daemon of Python workers."""
    command = [sys.executable, "-c", CHILD_OF_A_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        outer.stdout.readline()
        # a process has no command line for a moment after Popen() has returned
        eventually(
            lambda: any("sleep 600" in command_of(pid) for pid in descendants(outer.pid)), "it is found"
        )
