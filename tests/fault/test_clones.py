"""A second version of a job beside the first, and the swap: each record has its output in the job's stream once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import job_on

from grete.cli.main import main
from grete.config.load import load_file
from grete.errors import JobError, JobNotFound
from grete.model.ids import JobId
from grete.operations import open_job
from grete.operations.clones import compare, swap
from grete.operations.meeting import bring_together
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]


def sparkless(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "grete.testing.sparkless", *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def until_drained(job: JobId) -> None:
    process = sparkless("--job", job.shown, "--until-drained")
    _, said = process.communicate(timeout=patient(100))
    if process.returncode != 0:
        raise JobError(said[-3000:])


def killed_once(job: JobId, *, seen: Callable[[], int], least: int) -> None:
    """Its coordinator and its containers are killed on the way."""
    process = sparkless("--job", job.shown, "--until-drained")
    eventually(lambda: seen() > least or process.poll() is not None, "it is on its way")
    process.kill()
    process.communicate()
    with open_job(job) as handle:
        for one in handle.launches().values():
            if one.handle:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(one.handle.split("/")[1]), signal.SIGKILL)
    raise JobError("it was killed")


def processed(job: JobId) -> int:
    """How many records its checkpoints say, 0 while there is no such job."""
    with contextlib.suppress(JobNotFound), open_job(job) as handle:
        return sum(int(o) + 1 for c in handle.checkpoints.read().values() for o in c.offsets.values())
    return 0


def test_a_clone_goes_on_where_its_original_stood_and_no_record_is_lost_or_doubled(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with job_on(kafka, tmp_path, monkeypatch) as job:
        job.send(300)
        first = job.submit()
        job.await_counted()
        file, name = tmp_path / "clone.properties", f"{job.id.name}-2"
        assert main(["job", "clone", "--job", job.id.name, "--as", name, "--to-file", str(file)]) == 0
        made = load_file(file)
        assert made["task.outputs.suffix"] == f"-{name}"
        clone = JobId(name)
        second = sparkless("--config", str(file))
        eventually(lambda: second.poll() is None and processed(clone) >= 300, "it has read all", within_s=90)
        stop_one(job.id)
        assert first.wait(patient(60)) == 0
        job.send(200)
        eventually(lambda: processed(clone) >= 400, "it is ahead")
        stop_one(clone)
        second.communicate(timeout=patient(60))
        job.send(100)
        with pytest.raises(JobError, match="it was killed"):
            bring_together(
                [job.id, clone], lambda one: killed_once(one, seen=lambda: processed(one), least=300)
            )
        met = bring_together([job.id, clone], until_drained)
        assert 300 < sum(met.at.values()) < 600, "no further than it has to be"
        with open_job(job.id) as original, open_job(clone) as other:
            [found] = compare(original, other)
            assert found.is_equal
            assert found.records == found.other_records == sum(met.at.values())
        swap(job.id, clone)
        swap(job.id, clone)
        refused = sparkless("--job", job.id.name)
        assert (
            refused.communicate(timeout=patient(60))[1].count(f"job {name} goes on where this one ended") == 1
        )
        again = sparkless("--job", name)
        job.send(100)
        eventually(lambda: job.count() == 700, "it goes on in the original's stream", within_s=90)
        stop_one(clone)
        again.communicate(timeout=patient(60))
        job.assert_each_counted_once()
        assert main(["job", "compare", "--job", name, "--over", job.id.name]) == 0
        assert "records" in capsys.readouterr().out


def stop_one(job: JobId) -> None:
    with open_job(job) as handle:
        handle.requests.stop(30, "to compare them")
