"""Questions to stores over HTTP while the job runs: each answer is the state at exactly the checkpoint it names."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.fault.job_on_kafka import KEYS, Job, job_on

from grete.operations import open_job
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, reaches

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
STANDBYS = {"job.standbytasks.replication.factor": "2"}


class Questions:
    """Asks the coordinator that leads the job when this is made."""

    def __init__(self, job: Job) -> None:
        self._job = job
        with open_job(job.id) as handle:
            state = handle.state()
        assert state is not None
        token = Path(state.token_file).read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx2.Client(base_url=state.url, headers=headers, trust_env=False, timeout=30)

    def ask(self, store: str = "counts", **query: object) -> httpx2.Response:
        given = {key: str(value) for key, value in query.items()}
        return self._client.get(f"/api/v1/stores/{store}", params=given)

    def entries(self, **query: object) -> list[dict[str, Any]]:
        answer = self.ask(**query)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["entries"]
        return found

    def counted(self, key: int) -> int:
        """What the store says of a key, which has to be what the checkpoint of the answer says."""
        found = self.entries(key=f"k{key}")
        if not found:
            return 0
        [entry] = found
        partition = key % self._job.partitions
        assert entry["task"] == f"Partition {partition}"
        assert entry["value"] == self.expected(key, entry["checkpoint"])
        return int(entry["value"])

    def expected(self, key: int, checkpoint: Mapping[str, str]) -> int:
        """How many records of the key are before the checkpoint: those of a partition take turns."""
        partition = key % self._job.partitions
        read = int(checkpoint[f"kafka.{self._job.input}.{partition}"]) + 1
        turns = KEYS // self._job.partitions
        return (read + turns - 1 - key // self._job.partitions) // turns


def leads_anew(job: Job, epoch: int) -> bool:
    with open_job(job.id) as handle:
        state = handle.state()
    return state is not None and state.epoch > epoch and bool(state.url)


def test_an_answer_is_the_state_at_its_checkpoint_whatever_happens(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_on(kafka, tmp_path, monkeypatch, settings=STANDBYS) as job:
        job.send(200)
        job.submit()
        job.await_counted()
        questions = Questions(job)
        for turn in range(2):
            job.send(3_000)
            eventually(lambda: len(job.container_pids()) == 2, "both run", context=job.log_ends)
            for number in range(60):
                questions.counted(number % KEYS)
            os.kill(job.container_pids()[0], signal.SIGKILL)
            for number in range(20):
                questions.counted(number % KEYS)
            if turn == 0:
                job.lose_stores()
        reaches(lambda: sum(questions.counted(key) for key in range(KEYS)), 6_200, "records in the store")
        job.assert_each_counted_once()
        rows = questions.entries(prefix="k1", limit=5)
        assert [row["key"] for row in rows] == ["k10", "k12", "k14", "k16", "k18"]
        assert all(row["value"] == questions.expected(int(row["key"][1:]), row["checkpoint"]) for row in rows)
        assert questions.entries(key="nobody") == []
        [one] = questions.entries(key="k3", task="Partition 1")
        assert one["value"] == 310
        with open_job(job.id) as handle:
            state = handle.state()
            epoch = 0 if state is None else state.epoch
        job.kill()
        job.run_again()
        eventually(lambda: leads_anew(job, epoch), "a coordinator", context=job.log_ends)
        assert Questions(job).counted(3) == 310
        job.stop()


def test_what_cannot_be_answered_is_said(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with job_on(kafka, tmp_path, monkeypatch) as job:
        job.send(100)
        job.submit()
        job.await_counted()
        questions = Questions(job)
        unknown = questions.ask(store="count", key="k1")
        assert (unknown.status_code, "counts" in unknown.text) == (404, True)
        assert questions.ask(key="k1", task="Partition 9").status_code == 404
        assert questions.ask(key="k1", limit=0).status_code == 400
        assert questions.ask(key="k1", limit="many").status_code == 400
        job.stop()
