"""A real job whose input gets more partitions between two runs."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest


def grete(job: Any, *words: str) -> Any:
    """What a command prints with `-o json`."""
    done = subprocess.run(
        [*job.command(*words), "-o", "json"],
        env=job.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.spark
def test_a_stateful_job_goes_on_counting_when_its_input_has_grown(counter_job: Any) -> None:
    counter_job.fill(1_000)
    assert counter_job.run().returncode == 0
    grown = grete(counter_job, "stream", "grow", "local.in", "--partitions", "4")
    assert (grown["before"], grown["partitions"]) == (2, 4)
    counter_job.fill(2_000)
    (row,) = grete(counter_job, "status")
    assert row["lag"]["total"] == 2_000
    assert {p["task"] for p in row["lag"]["partitions"]} == {"Partition 0", "Partition 1", None}
    again = counter_job.run()
    assert again.returncode == 0, again.stderr
    counter_job.assert_exactly_once(3_000)
    (row,) = grete(counter_job, "status")
    assert (row["tasks"], row["lag"]["total"]) == (2, 0)
