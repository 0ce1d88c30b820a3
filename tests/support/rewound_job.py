"""A job of two tasks that has run three batches in this process, over the files that the commands open."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grete.cli.main import main
from grete.clock import SystemClock
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.keyed_log.sqlite_coordinator_log import FILE_NAME
from grete.metadata.coordinator_stream import stream_name
from grete.model.ids import JobId
from grete.sqlite_file import open_file
from grete.testing import counting
from grete.testing.job import JobUnderTest

JOB = JobId("test")
CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "stores.counts.factory": "grete.store.sqlite",
}
FIRST, SECOND = "local.in.0", "local.in.1"
Output = pytest.CaptureFixture[str]


def batch(job: JobUnderTest, first: str, second: str) -> None:
    """One batch of these keys, a second apart."""
    for partition, keys in enumerate((first, second)):
        for key in keys:
            job.clock.advance(1)
            job.send("local.in", 0, key=key, partition=partition)
    assert job.run_batch() is not None


@contextmanager
def job_in(home: Path, config: Mapping[str, str] = CONFIG) -> Iterator[JobUnderTest]:
    """The job, with its coordinator stream where commands look for it."""
    file = open_file(home / "local" / FILE_NAME)
    log = SqliteKeyedLog(file, stream_name(JOB), SystemClock())
    with JobUnderTest(
        counting.CountingTask, config, partitions={"local.in": 2}, directory=home, coordinator_log=log
    ) as made:
        yield made
    file.close()


@contextmanager
def three_batches(home: Path) -> Iterator[JobUnderTest]:
    """Two tasks that have run three batches: "aa" and "x", "b" alone, "a" and "x"."""
    with job_in(home) as made:
        batch(made, "aa", "x")
        batch(made, "b", "")
        batch(made, "a", "x")
        made.stop()
        yield made


def grete_json(capsys: Output, *words: str) -> Any:
    assert main([*words, "--job", "test", "-o", "json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: Output, code: int, *words: str) -> str:
    assert main([*words, "--job", "test"]) == code
    return capsys.readouterr().err


def rewind(capsys: Output, to: str, *more: str) -> dict[str, tuple[str, str, int, int]]:
    """SSP -> (next offset now, then, processed again, skipped)."""
    document = grete_json(capsys, "checkpoint", "rewind", "--to", to, *more)
    assert document["executed"] == ("--execute" in more)
    return {
        row["ssp"]: (row["current"], row["new"], row["reprocessed"], row["skipped"])
        for row in document["ssps"]
    }


def new_outputs(job: JobUnderTest) -> list[tuple[str, int]]:
    """Records that the job sends when it is restarted and runs to the end."""
    before = sent(job)
    job.restart()
    job.run()
    return sorted((sent(job) - before).elements())


def sent(job: JobUnderTest) -> Counter[tuple[str, int]]:
    """Every output, in whatever partition."""
    return Counter((str(one.key), int(one.message)) for one in job.outputs("local.out"))
