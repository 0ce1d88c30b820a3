"""Several tasks share each partition, containers are killed, and the number changes: each record counts once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import COPYING, KEYS, Job, job_on
from tests.fault.test_clones import killed_once, processed, sparkless, until_drained

from grete.cli.main import main
from grete.errors import JobError
from grete.failpoints import POINTS
from grete.model.ids import JobId
from grete.operations import open_job
from grete.operations.clones import swap
from grete.operations.comparison import compare_streams
from grete.operations.elasticity import set_elasticity
from grete.operations.meeting import bring_together, meeting
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
SHARED = {
    "job.elasticity.factor": "3",
    "job.container.count": "2",
    "job.coordinator.monitor-partition-change.frequency.ms": "500",
}


CHANGE = """
from tests.fault.test_clones import until_drained
from grete.model.ids import JobId
from grete.operations.elasticity import set_elasticity
set_elasticity(JobId("{job}"), {factor}, until_drained, stores_by_key=True)
"""


def tasks(job: Job) -> set[str]:
    with open_job(job.id) as handle:
        return set(handle.assignments())


def both(job: Job) -> list[int]:
    """The processes of its two containers. One that was killed has a record until its coordinator has noticed."""
    found: list[int] = []

    def are_both() -> bool:
        found[:] = [pid for pid in job.container_pids() if Path(f"/proc/{pid}").exists()]
        return len(found) == 2

    eventually(are_both, "both run", context=job.log_ends)
    return found


def test_tasks_of_one_partition_in_two_containers_count_each_record_once(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_on(kafka, tmp_path, monkeypatch, settings=SHARED) as job:
        job.send(2_000)
        job.submit()
        for turn, least in enumerate((300, 700, 1_100)):
            eventually(lambda least=least: job.count() > least, "it counts", context=job.log_ends)
            os.kill(both(job)[turn % 2], signal.SIGKILL)
        job.kill()
        job.lose_stores()
        job.send(500)
        job.run_again()
        job.await_counted()
        job.assert_each_counted_once()
        job.assert_order_of_keys()
        assert tasks(job) == {f"Partition {p} {bucket}" for p in range(2) for bucket in range(3)}
        job.grow(4)
        job.send(400)
        job.await_counted()
        job.assert_each_counted_once()
        job.stop()


@pytest.mark.nightly  # 35 s; a factor changes in `test_entries_of_stores...` in every run
def test_another_factor_goes_on_where_all_tasks_stand_alike(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {**SHARED, "task.max.records.per.batch": "7"}
    with job_on(kafka, tmp_path, monkeypatch, application=COPYING, settings=few) as job:
        job.send(3_000)
        job.submit()
        eventually(lambda: job.count() > 200, "it is on its way", context=job.log_ends)
        os.kill(job.container_pids()[0], signal.SIGKILL)  # the other one goes on, so they stand apart
        eventually(lambda: job.count() > 1_000, "it is on its way", context=job.log_ends)
        job.stop()
        with pytest.raises(JobError, match="it was killed"):
            set_elasticity(job.id, 2, lambda one: killed_once(one, seen=lambda: processed(one), least=100))
        with open_job(job.id) as handle:
            assert handle.settings.job.elasticity_factor == 3
        met = set_elasticity(job.id, 2, until_drained)
        assert 200 < sum(met.at.values()) < 3_000, "no further than it has to be"
        written = [output.value["n"] for output in job.written()]
        assert len(written) == len(set(written)) == sum(met.at.values())
        again = job.run_again()
        job.await_counted()
        assert tasks(job) == {f"Partition {p} {bucket}" for p in range(2) for bucket in range(2)}
        job.stop()
        assert again.wait(patient(60)) == 0
        assert main(["job", "elasticity", "--job", job.id.name, "--factor", "1", "--execute"]) == 0
        assert "1 tasks share each partition" in capsys.readouterr().out
        job.send(100)
        job.run_again()
        job.await_counted()
        assert tasks(job) == {"Partition 0", "Partition 1"}
        job.stop()
        assert main(["job", "elasticity", "--job", job.id.name, "--factor", "3", "--execute"]) == 0
        job.send(100)
        job.run_again()
        job.await_counted()
        job.assert_order_of_keys()
        assert sorted(output.value["n"] for output in job.written()) == list(range(3_200))
        job.stop()


@pytest.mark.nightly
def test_the_place_is_kept_or_the_change_is_refused(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with job_on(kafka, tmp_path, monkeypatch, application=COPYING) as job:
        job.send(100)
        job.submit()
        job.await_counted()
        words = ["job", "elasticity", "--job", job.id.name, "--factor", "2"]
        assert main([*words, "--execute"]) == 4
        assert "stop it first" in capsys.readouterr().err
        job.stop()
        assert main([*words, "-o", "json"]) == 0
        assert '"apart": false' in capsys.readouterr().out
        assert main(["config", "set", "--job", job.id.name, "job.elasticity.factor=2"]) == 0
        with pytest.raises(JobError, match=r"(?s)was read up to .* by 'Partition 0'.*`grete job elasticity`"):
            until_drained(job.id)
        assert main([*words, "--execute"]) == 0
        job.send(100)
        until_drained(job.id)
        assert sorted(output.value["n"] for output in job.written()) == list(range(200))
        with open_job(job.id) as handle:
            assert not meeting(handle).behind


NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
STEPS = [name for name in POINTS if name.startswith("elasticity.")]


def changed(job: Job, factor: int, at: str = "") -> int:
    """The exit code of a change by key in a process of its own, which is killed at a step of it."""
    code = CHANGE.format(job=job.id.name, factor=factor)
    environment = {**os.environ, **({"GRETE_FAILPOINT": f"{at}:kill"} if at else {})}
    return subprocess.run([sys.executable, "-c", code], env=environment, timeout=patient(120)).returncode


def test_entries_of_stores_go_to_the_tasks_of_their_keys_wherever_it_is_killed(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with job_on(kafka, tmp_path, monkeypatch) as job:
        job.send(600)
        job.submit()
        job.await_counted()
        job.stop()
        with pytest.raises(JobError, match="say --stores-by-key"):
            set_elasticity(job.id, 2, until_drained)
        sent = 600
        changes = list(zip((3, 2, 1), STEPS, strict=True))
        for factor, step in changes if NIGHTLY else changes[1:2]:  # by day the one whose tasks have to wait
            assert changed(job, factor, step) == -signal.SIGKILL
            job.send(60)
            until_drained(job.id)  # it goes on as it was
            if factor == 2:  # the tasks are those of the factor before until it is asked for
                words = ["config", "set", "--force", "--job", job.id.name, "job.elasticity.factor=2"]
                assert main(words) == 0
            assert changed(job, factor) == 0
            job.send(60)
            until_drained(job.id)
            sent += 120
            assert len(tasks(job)) == 2 * factor
            job.await_counted()
            job.assert_each_counted_once()
            job.assert_order_of_keys()
            capsys.readouterr()
            assert main(["store", "scan", "counts", "--job", job.id.name]) == 0
            found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert {one["task"] for one in found} == tasks(job), "none that is gone"
            assert sorted(one["key"] for one in found) == sorted(f"k{key}" for key in range(KEYS))
            assert sum(one["value"] for one in found) == sent


@pytest.mark.nightly  # test_clones.py has one in every run
def test_a_second_version_with_more_tasks_takes_the_place_of_a_stateful_job(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_on(kafka, tmp_path, monkeypatch) as job:
        job.send(600)
        job.submit()
        job.await_counted()
        job.stop()
        name, file = f"{job.id.name}-3", tmp_path / "clone.properties"
        assert main(["job", "clone", "--job", job.id.name, "--as", name, "--to-file", str(file)]) == 0
        with file.open("a") as made:
            made.write("job.elasticity.factor=3\n")
        clone = JobId(name)
        process = sparkless("--config", str(file), "--until-drained")
        process.communicate(timeout=patient(100))
        assert process.returncode == 0
        job.send(200)
        bring_together([job.id, clone], until_drained)
        with open_job(job.id) as original, open_job(clone) as other:
            [found] = compare_streams(original, other)
            assert found.is_equal
            assert {len(task.split()) for task in other.assignments()} == {3}
        swap(job.id, clone)
        job.send(300)
        until_drained(clone)
        job.await_counted()
        job.assert_each_counted_once()
        job.assert_order_of_keys()
