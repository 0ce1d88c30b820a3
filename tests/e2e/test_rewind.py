"""Rewinding the counter job through the real command line, with every choice of state; with Spark if that counts."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import closing
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
RECORDS, KEYS = 1_000, 50
ONCE = list(range(1, RECORDS // KEYS + 1))


def command(job: Any, *words: str) -> subprocess.CompletedProcess[str]:
    whole = [*job.command()[:3], "checkpoint", "rewind", "--job", "counter", "-o", "json", *words]
    return subprocess.run(whole, env=job.environment(), capture_output=True, text=True, timeout=patient(60))


def rewind(job: Any, *words: str) -> Any:
    done = command(job, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(job: Any, *, spark: bool = True) -> dict[str, list[int]]:
    """Run until drained; every count that was ever sent, by key."""
    result = job.run(spark=spark)
    assert result.returncode == 0, result.stderr + job.log()
    counts: dict[str, list[int]] = job.counts()
    assert len(counts) == KEYS
    return counts


def test_rewound_to_its_start_a_job_counts_on_or_from_the_state_of_then_or_from_nothing(
    counter_job: Any,
) -> None:
    counter_job.fill(RECORDS)
    assert all(counts == ONCE for counts in run(counter_job, spark=False).values())

    dry = rewind(counter_job, "--to", "oldest")
    assert (dry["reprocessed"], dry["executed"]) == (RECORDS, False)
    assert all(counts == ONCE for counts in run(counter_job, spark=False).values())

    rewind(counter_job, "--to", "oldest", "--execute", "--reason", "count on")
    on = list(range(1, 2 * len(ONCE) + 1))
    assert all(counts == on for counts in run(counter_job, spark=False).values())

    rewind(counter_job, "--to", "oldest", "--state", "restore", "--execute")
    assert all(counts == on + ONCE for counts in run(counter_job, spark=False).values())

    rewind(counter_job, "--to", "oldest", "--state", "discard", "--execute")
    assert all(counts == on + ONCE + ONCE for counts in run(counter_job, spark=False).values())
    assert all(counts == on + ONCE + ONCE for counts in run(counter_job, spark=False).values()), (
        "applied once"
    )


def test_a_running_job_takes_a_rewind_up_between_two_batches_and_goes_on(counter_job: Any) -> None:
    counter_job.fill(RECORDS)
    running = subprocess.Popen(
        counter_job.command("run", "--quiet"), env=counter_job.environment(), stderr=subprocess.DEVNULL
    )
    try:
        counter_job.wait_until_counted(RECORDS)
        rewind(counter_job, "--to", "oldest", "--state", "discard", "--live", "--execute")
        counter_job.wait_until_counted(2 * RECORDS)
        counter_job.fill(RECORDS)
        counter_job.wait_until_counted(3 * RECORDS)
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(patient(90)) == 0
    on = list(range(1, 2 * len(ONCE) + 1))
    assert all(counts == ONCE + on for counts in counter_job.counts().values())


PIPELINE = """
import grete
from pyspark.sql import functions as F


class Counts(grete.DataFramePipeline):
    output_mode = "update"
    output = "local.out"

    def build(self, inputs):
        return inputs["local.in"].groupBy("key").agg(F.count(F.lit(1)).alias("count"))
"""


@pytest.mark.nightly  # in `make test` one in the tests' own Spark does: test_testing_pipeline.py
def test_a_pipeline_starts_over_with_empty_state_and_only_when_that_was_said(counter_job: Any) -> None:
    (counter_job.config.parent / "pipeline.py").write_text(PIPELINE)
    lines = counter_job.config.read_text().replace("task.class=counter:Counter", "app.class=pipeline:Counts")
    counter_job.config.write_text(lines.replace("stores.counts.factory=grete.store.sqlite\n", ""))
    counter_job.fill(RECORDS)
    assert all(counts == ONCE[-1:] for counts in run(counter_job).values())

    refused = command(counter_job, "--to", "oldest", "--execute")
    assert (refused.returncode, "--state discard" in refused.stderr) == (1, True)

    rewind(counter_job, "--to", "oldest", "--state", "discard", "--execute")
    assert all(counts == ONCE[-1:] * 2 for counts in run(counter_job).values())
    assert all(counts == ONCE[-1:] * 2 for counts in run(counter_job).values()), "applied once"


def test_offsets_that_retention_removed_stop_the_job_with_the_range_until_it_is_rewound(
    counter_job: Any,
) -> None:
    counter_job.fill(RECORDS)
    run(counter_job, spark=False)
    counter_job.fill(RECORDS)
    with closing(LocalSystem(counter_job.home / "local", SystemClock())) as local:
        ends = {number: int(offsets.upcoming) for number, offsets in local.offsets("in").items()}
        with local.file.transaction() as connection:  # what retention does
            connection.execute(
                "UPDATE partitions SET oldest = ? WHERE partition = 0 AND stream = "
                "(SELECT id FROM streams WHERE name = 'in')",
                (ends[0] - 1,),
            )
    result = counter_job.run(spark=False)
    assert result.returncode == 1
    assert f"the offsets from {ends[0] // 2} to before {ends[0] - 1} are gone" in result.stderr
    assert counter_job.log().count("are gone") == 1, "trying again would change nothing"
    rewound = rewind(counter_job, "--ssp", "local.in.0", "--to", "oldest", "--execute")
    assert rewound["skipped"] == ends[0] - 1 - ends[0] // 2
    result = counter_job.run(spark=False)
    assert result.returncode == 0, result.stderr + counter_job.log()
    assert counter_job.counted() == RECORDS + ends[1] // 2 + 1
