"""A second version of a job beside the first, and the swap: each record has its output in the job's stream once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import COPYING, KEYS, Job, job_on
from tests.support.counter_job import COUNTER, COUNTER_PROPERTIES, CounterJob, make_job
from tests.support.run_pipeline import CLONE, JOB, RunPipeline
from tests.support.topic_records import topic_records

from grete.cli.main import main
from grete.clock import SystemClock
from grete.config.load import load_file
from grete.errors import JobError, JobNotFound
from grete.metadata.job_index import jobs
from grete.model.ids import JobId
from grete.operations import open_job
from grete.operations.clones import swap
from grete.operations.comparison import compare_streams
from grete.operations.meeting import bring_together
from grete.spark.lineage.files import current_lineage
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
MADE_IN_STEPS = ("clone.made", "clone.store-copied", "clone.checkpoints-written")


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


def killed_clone(job: Job, folder: Path, point: str) -> None:
    """A clone is asked for by another process, which is killed there."""
    asked = ["job", "clone", "--job", job.id.name, "--as", f"{job.id.name}-2", "--from", "checkpoint"]
    file = folder / "clone.properties"
    killed = subprocess.run(
        [sys.executable, "-m", "grete.cli.main", *asked, "--to-file", str(file)],
        env=os.environ | {"GRETE_FAILPOINT": f"{point}:kill"},
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert (killed.returncode, file.exists()) == (-signal.SIGKILL, False), killed.stderr


def cloned(job: Job, folder: Path, *words: str, code: int = 0) -> tuple[Path, str]:
    """The file and the name of a clone that is asked for, with this exit code."""
    file, name = folder / "clone.properties", f"{job.id.name}-2"
    asked = ["job", "clone", "--job", job.id.name, "--as", name, "--to-file", str(file), *words]
    assert main(asked) == code
    return file, name


def test_a_clone_goes_on_where_its_original_stood_and_no_record_is_lost_or_doubled(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with job_on(kafka, tmp_path, monkeypatch) as job:
        job.send(300)
        first = job.submit()
        job.await_counted()
        file, name = cloned(job, tmp_path)
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
            [found] = compare_streams(original, other)
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


def test_on_kafka_a_clone_begins_with_the_offsets_and_stores_of_its_original(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_on(kafka, tmp_path, monkeypatch) as job:
        job.send(300)
        job.submit()
        job.await_counted()
        job.stop()
        file, name = cloned(job, tmp_path, "--from", "checkpoint")
        assert JobId(name) in jobs(tmp_path / "home"), "it is found by its name before it has run"
        job.send(100)
        for one in (("--config", str(file)), ("--job", job.id.name)):
            process = sparkless(*one, "--until-drained")
            assert process.wait(patient(100)) == 0, process.communicate()[1]
        with open_job(job.id) as original, open_job(JobId(name)) as other:
            [found] = compare_streams(original, other)
        assert (found.records, found.other_records, found.is_equal) == (100, 100, True)
        job.assert_each_counted_once()


def test_a_job_goes_on_while_its_clone_begins_with_one_of_its_commits(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is counted once by both: before the commit by the job, and behind it by each.

    The clone is killed at each step of its making, and asked for again, while the job goes further each time.
    """
    with job_on(kafka, tmp_path, monkeypatch) as job:
        job.send(300)
        first = job.submit()
        job.await_counted()
        records, is_made = 0, threading.Event()

        def send() -> None:
            nonlocal records
            while not is_made.is_set():
                job.send(20)
                records += 20

        sending = threading.Thread(target=send)
        sending.start()
        try:
            for point in MADE_IN_STEPS:
                killed_clone(job, tmp_path, point)
            _, name = cloned(job, tmp_path, "--from", "checkpoint")
        finally:
            is_made.set()
            sending.join()
        assert first.poll() is None, "nothing has stopped it"
        job.await_counted()
        job.assert_each_counted_once()
        job.stop()
        clone = JobId(name)
        until_drained(clone)
        with open_job(job.id) as original, open_job(clone) as other:
            [found] = compare_streams(original, other)
            with other.system("kafka") as system:
                partitions = system.partition_count(f"{job.output}-{name}")
        assert found.is_equal
        assert 0 < found.other_records <= records
        counts: dict[bytes | None, list[int]] = {}
        for record in topic_records(kafka.bootstrap, f"{job.output}-{name}", partitions):
            counts.setdefault(record.key, []).append(json.loads(record.value or b"")["count"])
        total = (300 + records) // KEYS
        assert all(found == list(range(found[0], total + 1)) for found in counts.values())


def test_a_clone_that_was_killed_while_it_was_made_is_asked_for_again_and_goes_on_where_its_original_does(
    tmp_path: Path,
) -> None:
    """Compared is what both have written since."""
    job, file = make_job(tmp_path, COUNTER, COUNTER_PROPERTIES), tmp_path / "clone.properties"
    clone = CounterJob(job.home, file)

    def run(which: CounterJob) -> None:
        ran = which.run(spark=False)
        assert ran.returncode == 0, ran.stderr

    job.fill(500)
    run(job)
    words = ("job", "clone", "--as", "counter-2", "--from", "checkpoint", "--to-file", str(file))
    for point in MADE_IN_STEPS:
        killed = job.grete(*words, GRETE_FAILPOINT=f"{point}:kill")
        assert (killed.returncode, file.exists()) == (-signal.SIGKILL, False), killed.stderr
    made = job.grete(*words)
    assert made.returncode == 0, made.stderr
    assert [one.name for one in jobs(job.home)] == ["counter", "counter-2"]
    again = job.grete(*words)
    assert (again.returncode, "there is a job counter-2 already" in again.stderr) == (1, True), again.stderr
    job.fill(100)
    run(job)
    run(clone)
    command = job.command("job", "compare", "--job", "counter-2", "--over", "counter", "-o", "json")[:-2]
    compared = subprocess.run(command, env=job.environment(), capture_output=True, text=True, check=True)
    [output] = json.loads(compared.stdout)["outputs"]
    assert (output["records"], output["clone_records"], output["same"]) == (100, 100, 50)


def test_a_clone_begins_at_a_time(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with job_on(kafka, tmp_path, monkeypatch, application=COPYING) as job:
        job.send(60)
        job.submit()
        job.await_counted()
        since_ms = time.time_ns() // 1_000_000 + 1
        eventually(lambda: time.time_ns() // 1_000_000 > since_ms, "it is later")
        job.send(40)
        job.await_counted()
        cloned(job, tmp_path, "--from", "offset:3", code=2)
        assert (
            "--from 'offset:3': write oldest, upcoming, timestamp:TIME or checkpoint"
            in capsys.readouterr().err
        )
        file, name = cloned(job, tmp_path, "--from", f"timestamp:{since_ms}")
        process = sparkless("--config", str(file), "--until-drained")
        assert process.wait(patient(100)) == 0, process.communicate()[1]
        with open_job(job.id) as original, open_job(JobId(name)) as other:
            [found] = compare_streams(original, other)
        assert (found.records, found.other_records) == (100, 40)


def test_a_disk_that_is_full_while_a_lineage_is_copied_is_named_and_the_clone_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    with closing(LocalSystem(tmp_path / "local", SystemClock())) as system:
        pipeline = RunPipeline(tmp_path, system)
        system.append("in", [Message(b"k", b"v", 0, n % 2) for n in range(20)])
        pipeline.commit(*(one.id for one in pipeline.lineages))
    files = [
        pipeline.place(JOB, p) / one.id / "spark" / "metadata" for p, one in enumerate(pipeline.lineages)
    ]
    words = ["job", "clone", "--job", JOB.name, "--as", CLONE.name, "--from", "checkpoint"]
    command = [
        sys.executable,
        "-m",
        "grete.cli.main",
        *words,
        "--to-file",
        str(tmp_path / "clone.properties"),
    ]
    full = ["-e", "trace=sendfile", "-e", "inject=sendfile:error=ENOSPC"]
    for file in files:
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(file), *full]
        ran = subprocess.run([*strace, *command], capture_output=True, text=True, timeout=patient(60))
        assert ran.returncode == 1
        assert ran.stderr.startswith("grete: "), ran.stderr
        assert ran.stderr.count("No space left on device") == ran.stderr.count("\n") == 1, ran.stderr
        assert not list(pipeline.place(CLONE, 0 if file == files[0] else 1).glob("*/spark")), (
            "it keeps no room"
        )
    subprocess.run(command, check=True, timeout=patient(60))
    for p, file in enumerate(files):
        own = current_lineage(pipeline.place(CLONE, p))
        assert own is not None
        assert (pipeline.place(CLONE, p) / own.id / "spark" / "metadata").read_bytes() == file.read_bytes()
