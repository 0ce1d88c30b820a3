"""Tasks that change hands again and again while records flow: each record once, a key's in their order.

On the embedded system and on Kafka. By night as often as people asked; each test prints how often, and how many
records there were.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import job_on
from tests.support.moved_job import PARTITIONS, await_all, change, containers, load, moved
from tests.support.shared_job import SharedJob

from grete.config.settings import Settings
from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient, reaches

IS_NIGHT = os.environ.get("GRETE_NIGHTLY") == "1"
pytestmark = [pytest.mark.fault, pytest.mark.timeout(3_000 if IS_NIGHT else 300)]


def rounds(by_night: int) -> int:
    return by_night if IS_NIGHT else 1


@pytest.mark.parametrize("system", ["local", pytest.param("kafka", marks=pytest.mark.nightly)])
def test_from_one_container_to_two_to_four_to_one_each_record_is_counted_once(
    system: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {"job.container.count": "1", "job.standbytasks.replication.factor": "1"}
    with moved(system, alone, tmp_path, request, monkeypatch) as job:
        job.start()
        with job.load():
            reaches(job.count, 500, "records counted", context=job.report)
            for count in (1, *(2, 4, 1) * rounds(10)):
                change(job, "job.container.count", str(count))
                eventually(lambda wanted=count: containers(job) == wanted, f"{count}", context=job.report)
                reaches(job.count, job.count() + 500, "records counted", context=job.report)
        await_all(job)
        job.stop()
        job.check()
        print(f"{system}: {3 * rounds(10)} changes, {job.sent()} records, none lost, none twice")


@pytest.mark.nightly  # test_chaos_job.py has copies that are taken over
@pytest.mark.parametrize("system", ["kafka", pytest.param("local", marks=pytest.mark.nightly)])
def test_standby_tasks_that_move_while_their_copies_are_behind_keep_their_numbers_and_lose_nothing(
    system: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records come all the time, so each copy is behind. Then all stores are lost, and the copies count."""
    settings = {"job.container.count": "2", "job.standbytasks.replication.factor": "2"}
    with moved(system, settings, tmp_path, request, monkeypatch) as job:
        numbers: dict[str, int] = {}
        job.start()
        with job.load():
            reaches(job.count, 500, "records counted", context=job.report)
            for turn in range(rounds(20) + 1):
                count = 2 + turn % 2
                change(job, "job.container.count", str(count))
                eventually(lambda wanted=count: containers(job) == wanted, f"{count}", context=job.report)
                reaches(job.count, job.count() + 500, "records counted", context=job.report)
                with open_job(job.id) as handle:
                    mapping = handle.changelog_mapping()
                    given = {str(task): mapping[task] for task in handle.active_tasks()}
                assert len(set(given.values())) == len(given), "no two tasks have a changelog partition"
                assert numbers.items() <= given.items(), "a number that was given once stays"
                numbers = given
        await_all(job)
        job.stop()
        with open_job(job.id) as handle:
            shutil.rmtree(handle.state_directory / "stores")
        job.start()
        with job.load():
            reaches(job.count, job.count() + 500, "records counted", context=job.report)
        await_all(job)
        job.stop()
        job.check()
        print(f"{system}: moved {rounds(20)} times, {job.sent()} records, none lost, none twice")


OPEN_FOR_LONG = {"task.commit.ms": "1000", "task.max.records.per.batch": "100000"}
"""A transaction is open whenever somebody comes or goes."""


def test_a_processor_that_comes_amid_a_transaction_and_goes_again_and_again_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    job = SharedJob(tmp_path, {"job.coordinator.system": "local", **OPEN_FOR_LONG})
    try:
        with job.counting.fed(300):
            job.running("a")
            for number in range(2 * rounds(25)):
                [second] = job.running(f"b{number}")
                assert second.ends() == 0
                job.shares(1)
        job.counted()
        print(
            f"local: came and went {2 * rounds(25)} times, {job.counting.sent} records, none lost, none twice"
        )
    finally:
        job.close()


@pytest.mark.nightly  # the embedded system's is of every run
def test_on_kafka_a_processor_that_comes_amid_a_transaction_and_goes_again_and_again_costs_no_record(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"job.debounce.time.ms": "500", **OPEN_FOR_LONG}
    with job_on(kafka, tmp_path / "job", monkeypatch, partitions=PARTITIONS, settings=quick) as job:
        config = tmp_path / "shared.json"
        config.write_text(json.dumps(job.settings))
        log = tmp_path / "processors.log"

        def joins(id: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "grete_workbench.processor_process", str(config), id]
            with log.open("ab") as output:
                return subprocess.Popen(command, stdout=output, stderr=output)

        def share(among: int) -> None:
            def are_equal() -> bool:
                with open_job(job.id, Settings.of(job.settings), must_exist=False) as handle:
                    owners = list(handle.assignments().values())
                return sorted(map(owners.count, set(owners))) == [PARTITIONS // among] * among

            eventually(are_equal, f"{among} share", context=report)
            reaches(job.count, job.count() + 300, "records counted", context=report)

        def report() -> str:
            return log.read_text()[-8_000:]

        first = joins("a")
        try:
            with load(job):
                share(1)
                for number in range(rounds(50)):
                    second = joins(f"b{number}")
                    share(2)
                    second.terminate()
                    assert second.wait(patient(60)) == 0, report()
                    share(1)
            job.await_counted(report)
            first.terminate()
            assert first.wait(patient(60)) == 0
        finally:
            first.kill()
        job.assert_each_counted_once()
        job.assert_order_of_keys()
        print(f"kafka: came and went {rounds(50)} times, {job._sent} records, none lost, none twice")
