"""kill -9 around a startpoint: the job starts at the startpoint, once, and no record is lost or counted twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grete.failpoints import POINTS
from grete.testing.waiting import patient

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]
RECORDS, KEYS = 2_000, 50
NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
POINTS_AROUND = [name for name in POINTS if name.startswith("startpoint.")]

APPLICATION = """
import sys
from pathlib import Path
from grete.clock import SystemClock
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.keyed_log.sqlite_coordinator_log import FILE_NAME
from grete.metadata.coordinator_stream import stream_name
from grete.model.ids import JobId
from grete.sqlite_file import open_file
from grete.testing.counting import CountingTask
from grete.testing.job import JobUnderTest


home = Path(sys.argv[1])
file = open_file(home / "local" / FILE_NAME)
log = SqliteKeyedLog(file, stream_name(JobId("test")), SystemClock())
config = {
    "task.inputs": "local.in", "task.outputs": "local.out", "stores.counts.factory": "grete.store.sqlite",
    "systems.local.samza.key.serde": "string", "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest", "task.max.records.per.batch": "3",
}
job = JobUnderTest(CountingTask, config, partitions={"local.in": 2}, directory=home, coordinator_log=log)
job._epoch = int(sys.argv[3])  # grows from process to process, as a coordinator's does
with job:
    for key in sys.argv[2]:
        job.send("local.in", 0, key=key, partition=ord(key) % 2)
    job.run()
    print(sorted((one.key, one.message) for one in job.outputs("local.out")))
"""


class Program:
    """The counter in a process of its own, without Spark, and the command line over its files."""

    def __init__(self, directory: Path) -> None:
        self._home = directory / "home"
        self._path = directory / "program.py"
        self._path.write_text(APPLICATION)
        self._runs = 0

    def _call(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            env={**os.environ, "GRETE_HOME": str(self._home), **environment},
            capture_output=True,
            text=True,
            timeout=patient(120),
        )

    def _start(self, keys: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self._runs += 1
        return self._call(str(self._path), str(self._home), keys, str(self._runs), **environment)

    def run(self, keys: str = "") -> str:
        """Send these, run to the end, and say all that was ever sent."""
        done = self._start(keys)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def die_at(self, point: str) -> None:
        died = self._start("", GRETE_FAILPOINT=point)
        assert died.returncode == -signal.SIGKILL, f"{point} was never reached: {died.stderr}"

    def rewind(self, *words: str) -> None:
        done = self._call(
            "-m", "grete.cli.main", "checkpoint", "rewind", "--job", "test", "--execute", *words
        )
        assert done.returncode == 0, done.stderr


def sent(*counts: tuple[str, int]) -> str:
    """Every count from one on, of each pass over each key."""
    return str(sorted((key, number) for key, last in counts for number in range(1, last + 1)))


@pytest.mark.parametrize(
    "point", ["startpoint.resolved:kill", "commit.in-transaction:kill", "startpoint.applied:kill"]
)
@pytest.mark.parametrize("nth", [":2", pytest.param("", marks=pytest.mark.nightly)])
def test_killed_around_the_acknowledgement_each_task_goes_back_once(
    tmp_path: Path, point: str, nth: str
) -> None:
    program = Program(tmp_path)
    program.run("aaabbbb")
    program.rewind("--to", "oldest", "--state", "discard")
    program.die_at(point + nth)  # the second time: one task has gone back, the other one has not
    assert program.run() == sent(("a", 3), ("a", 3), ("b", 4), ("b", 4))
    assert program.run() == sent(("a", 3), ("a", 3), ("b", 4), ("b", 4))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("point", ["task.after-process", "executor.before-produce", "executor.committed"])
def test_killed_in_the_first_batch_after_it_nothing_is_lost_or_done_twice(tmp_path: Path, point: str) -> None:
    program = Program(tmp_path)
    program.run("aaabbbb")
    program.rewind("--to", "oldest", "--state", "restore")
    program.die_at(f"{point}:kill")
    assert program.run() == sent(("a", 3), ("a", 3), ("b", 4), ("b", 4))


@pytest.mark.spark  # nightly; a start applies a rewind in the same way without
def test_killed_at_every_step_of_a_rewind_every_record_is_counted_again_exactly_once(
    counter_job: Any, tmp_path: Path
) -> None:
    """All kills in one rewind: each start meets the next one."""
    counter_job.fill(RECORDS)
    result = counter_job.run(spark=NIGHTLY)
    assert result.returncode == 0, result.stderr + counter_job.log()
    command = [*counter_job.command()[:3], "checkpoint", "rewind", "--job", "counter", "-o", "json"]
    rewound = subprocess.run(
        [*command, "--to", "oldest", "--state", "discard", "--execute"],
        env=counter_job.environment(),
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert json.loads(rewound.stdout)["reprocessed"] == RECORDS
    points = [*POINTS_AROUND, *(["container.session-started", "executor.committed"] if NIGHTLY else [])]
    counter_job.run_through([(point, 1) for point in points], tmp_path / "died", spark=NIGHTLY)
    once = list(range(1, RECORDS // KEYS + 1))
    assert counter_job.counts() == {f"key{key}": once + once for key in range(KEYS)}
