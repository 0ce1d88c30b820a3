"""The life of a job on the command line: run, look, change, be refused, stop, run again from its stream alone."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grete.model.ids import JobId
from grete.operations import open_job
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
RECORDS = 500
JOB = ("--job", "counter")


def grete(job: Any, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*job.command()[:3], *words]
    return subprocess.run(
        command,
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=patient(300),
        stdin=subprocess.DEVNULL,
    )


def shown(job: Any, *words: str) -> Any:
    done = grete(job, *words, *JOB, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def running(job: Any) -> Iterator[subprocess.Popen[str]]:
    """`grete run` that goes on until it is stopped; every record there is has been processed."""
    with subprocess.Popen(
        job.command("run"), env=job.environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            job.wait_until_counted(RECORDS)
            yield process
        finally:
            process.kill()


def happened() -> set[str]:
    with open_job(JobId("counter")) as handle:
        return {row.event for row in handle.history()}


def loaded(pid: int) -> set[str]:
    """The packages with compiled modules that a process has."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return set(re.findall(r"/site-packages/(\w+)/", maps))


def test_a_job_is_run_looked_at_changed_refused_a_second_copy_stopped_and_run_again(
    counter_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRETE_HOME", str(counter_job.home))
    counter_job.fill(RECORDS)
    with running(counter_job) as process:
        (status,) = shown(counter_job, "status")
        assert (status["state"], status["run_by"], status["behind"]) == (
            "running",
            f"process {process.pid} on {status['hosts']['0']}",
            0,
        )
        assert [row["container"] for row in shown(counter_job, "job-model")] == ["0", "0"]
        [container] = shown(counter_job, "container", "list")
        assert not loaded(container["pid"]) & {"pandas", "confluent_kafka", "grpc"}, (
            "none is needed: 50 MB less"
        )

        second = counter_job.run()
        assert second.returncode == 4
        assert f"process {process.pid}" in second.stderr

        writer = ["stream", "write", f"--config-path=file://{counter_job.config}", "--type", "set-config"]
        assert grete(counter_job, *writer, "--key", "counter.note", "--value", "hello").returncode == 0
        # else the stop may overtake it, and the next run be the first that has it
        eventually(lambda: "reconfigured" in happened(), "the change", context=counter_job.report)

        stopped = grete(counter_job, "stop", *JOB, "--deadline", "60", "--reason", "enough")
        assert (stopped.returncode, stopped.stdout) == (0, "counter: stopped\n"), stopped.stderr
        assert process.wait(timeout=patient(60)) == 0
        assert process.stderr is not None
        assert f"{RECORDS} records" in process.stderr.read()

    counter_job.config.unlink()
    counter_job.fill(RECORDS)
    again = grete(counter_job, "run", *JOB, "--until-drained", "--quiet")
    assert again.returncode == 0, again.stderr
    assert shown(counter_job, "config", "get")["counter.note"] == "hello"
    counts = counter_job.counts()
    assert sum(map(len, counts.values())) == 2 * RECORDS
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in counts.values())
    events = [row["event"] for row in shown(counter_job, "history")]
    assert [event for event in events if event in ("deployment", "attempt", "stopped", "finished")] == [
        "deployment",
        "stopped",
        "attempt",
        "finished",
    ]
