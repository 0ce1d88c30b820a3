"""A disk that is full while a command changes a job: it says so, and does it when there is room."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.counter_job import COUNTER, COUNTER_PROPERTIES, KEYS, CounterJob, make_job

from grete.testing.waiting import patient

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(900)]
RECORDS, MORE = 500, 100
COMMANDS = {
    "clone": (40, "job clone --as third --from checkpoint --to-file FOLDER/third.properties"),
    "promote": (20, "job promote --job counter-2 --over counter --execute"),
    "elasticity": (20, "job elasticity --factor 2 --stores-by-key --execute"),
    "import": (10, "store import counts --from FOLDER/exported --execute"),
    "rewind": (10, "checkpoint rewind --to oldest --state discard --execute"),
    "config": (4, "config set task.commit.ms=500"),
}
"""And how many writes lie between two disks that are full."""


def counted(job: CounterJob) -> None:
    ran = job.run(spark=False)
    assert ran.returncode == 0, ran.stderr + job.report()


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A job that has counted, a clone that stands where it does, and its store as a file."""
    job = make_job(tmp_path / "prepared", COUNTER, COUNTER_PROPERTIES)
    job.fill(RECORDS)
    counted(job)
    folder = tmp_path / "prepared"
    assert job.grete("store", "export", "counts", "--to", f"{folder}/exported").returncode == 0
    made = job.grete("job", "clone", "--as", "counter-2", "--to-file", f"{folder}/clone.properties")
    assert made.returncode == 0, made.stderr
    counted(CounterJob(job.home, folder / "clone.properties"))
    return folder


def is_met(job: CounterJob, step: int, command: list[str], folder: Path) -> bool:
    """Run the command with a disk that is full from its nth write on; whether it came to that many."""
    trace = folder / "trace"
    full = f"inject=pwrite64:error=ENOSPC:when={step}..{step + 20}"
    strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=pwrite64", "-e", full]
    ran = subprocess.run(
        [*strace, *command],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    was_full = "INJECTED" in trace.read_text()
    if ran.returncode != 0:
        assert was_full, ran.stderr
        assert "Traceback" not in ran.stderr
        assert "full" in ran.stderr or "No space left" in ran.stderr, ran.stderr
        again = subprocess.run(command, env=job.environment(), capture_output=True, text=True, check=False)
        assert again.returncode == 0, f"step {step}: {ran.stderr}\nand then: {again.stderr}"
    return was_full


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_disk_is_full_says_so_and_can_be_asked_for_again(
    prepared: Path, tmp_path: Path, name: str
) -> None:
    (stride, line), step, met = COMMANDS[name], 1, 0
    while True:
        folder = tmp_path / str(step)
        shutil.copytree(prepared, folder, symlinks=True)
        job = CounterJob(folder / "home", folder / "application" / "counter.properties")
        words = line.replace("FOLDER", str(folder)).split()
        command = job.command(*words) if "--job" not in words else job.command()[:3] + words
        if not is_met(job, step, command, folder):
            break
        met += 1
        job.fill(MORE)
        check(name, job, folder)
        step += stride
    assert met > 1
    print(f"{name}: met at {met} steps")


def check(name: str, job: CounterJob, folder: Path) -> None:
    """Nothing of what the job has counted is lost, and nothing counts twice."""
    each = (RECORDS + MORE) // KEYS
    before = list(range(1, RECORDS // KEYS + 1))
    if name == "clone":
        counted(CounterJob(job.home, folder / "third.properties"))
    counted(CounterJob(job.home, folder / "clone.properties") if name == "promote" else job)
    expected = [*before, *range(1, each + 1)] if name == "rewind" else list(range(1, each + 1))
    assert set(map(tuple, job.counts().values())) == {tuple(expected)}
