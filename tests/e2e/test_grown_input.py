"""A running job whose input gets more partitions."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from grete.testing.waiting import eventually, patient

pytestmark = pytest.mark.timeout(300)

EVERY_SECOND = {"job.coordinator.monitor-partition-change.frequency.ms": "1000"}


def grete(job: Any, *words: str) -> Any:
    """A command's output with `-o json`."""
    command = [*job.command(*words), "-o", "json"]
    done = subprocess.run(command, env=job.environment(), capture_output=True, text=True, timeout=patient(60))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def metrics(job: Any) -> dict[str, float]:
    """The metrics of the running coordinator."""
    (row,) = grete(job, "status")
    token = Path(row["token_file"]).read_text()
    answer = httpx2.get(
        f"{row['url']}/metrics",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=patient(30),
    )
    return {name: float(value) for name, value in re.findall(r"^(\w.*) (\S+)$", answer.text, re.MULTILINE)}


def of_tasks(found: dict[str, float]) -> list[float]:
    """The messages that each task has processed, as it counts them."""
    of_task = re.compile(r'grete_counter_process_calls_total{.*task="Partition')
    return [value for name, value in found.items() if of_task.match(name)]


def test_a_running_stateful_job_takes_up_the_partitions_its_input_has_got(counter_job: Any) -> None:
    counter_job.fill(1_000)
    counter_job.configure(EVERY_SECOND)
    running = subprocess.Popen(counter_job.without_spark(), env=counter_job.environment())
    try:
        counter_job.wait_until_counted(1_000)
        grown = grete(counter_job, "stream", "grow", "local.in", "--partitions", "4")
        assert (grown["before"], grown["partitions"]) == (2, 4)
        counter_job.fill(2_000)
        counter_job.wait_until_counted(3_000)
        # a container reports its progress with its next heartbeat
        records = 'grete_process_envelopes_total{container="0"}'
        eventually(lambda: metrics(counter_job)[records] == 3_000, "the metrics follow")
        found = metrics(counter_job)
        assert found['grete_partition_count{system="local",stream="in"}'] == 4
        assert found['grete_commit_calls_total{container="0"}'] >= 2
        assert found['grete_commit_seconds_total{container="0"}'] > 0
        assert found['grete_cpu_seconds_total{container="0"}'] > 0
        assert found['grete_container_restarts_total{container="0"}'] == 0
        assert found["grete_lag_messages"] == 0
        eventually(
            lambda: sum(of_tasks(metrics(counter_job))) == 3_000, "what tasks count follows within seconds"
        )
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=patient(60)) == 0
    counter_job.assert_exactly_once(3_000)
    (row,) = grete(counter_job, "status")
    assert (row["tasks"], row["lag"]["total"]) == (2, 0)
