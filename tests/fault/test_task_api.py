"""Asynchronous tasks and outputs of another system, while the container is killed at every point of its commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import patient

RECORDS = 400
APPLICATION = """
import asyncio

import grete


class Mirror(grete.AsyncStreamTask):
    def init(self, context):
        self.sums = context.store("sums")

    async def process(self, envelope, collector, coordinator):
        await asyncio.sleep(0.001)
        self.sums.put("sum", (self.sums.get("sum") or 0) + envelope.message)
        collector.send("local.out", envelope.message)
        collector.send("other.mirror", envelope.message)

    def on_end_of_stream(self, collector, coordinator):
        collector.send("local.sums", self.sums.get("sum"))
"""
CONFIG = """
job.name=mirror
task.class=mirror:Mirror
task.inputs=local.in
task.outputs=local.out,local.sums,other.mirror
task.max.concurrency=20
task.max.records.per.batch=50
cluster-manager.container.retry.longest-pause.ms=100
systems.local.samza.offset.default=oldest
systems.local.samza.msg.serde=json
systems.other.samza.factory=local
systems.other.samza.msg.serde=json
stores.sums.factory=grete.store.sqlite
stores.sums.key.serde=string
stores.sums.msg.serde=json
"""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "point", ["task.after-process", "executor.before-produce", "executor.before-commit", "executor.committed"]
)
def test_killed_in_its_commits_own_outputs_are_there_once_and_others_at_least_once(
    tmp_path: Path, point: str
) -> None:
    home = tmp_path / "home"
    (tmp_path / "mirror.py").write_text(APPLICATION)
    config = tmp_path / "job.properties"
    config.write_text(f"{CONFIG}job.application.path={tmp_path}\nsystems.other.path={tmp_path / 'other'}\n")
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        local.create_stream(StreamSpec("in", 2))
        local.append("in", [Message(None, b"%d" % i, 1, i % 2) for i in range(RECORDS)])
    died = tmp_path / "died"
    died.mkdir()
    kills = {
        "GRETE_FAILPOINT": f"{point}:kill:2,{point}:kill:5",
        "GRETE_FAILPOINT_ONCE": str(died),
        "GRETE_FAILPOINT_CONTAINER": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", "grete.testing.sparkless", "--until-drained", "--config", str(config)],
        env={**os.environ, "GRETE_HOME": str(home), **kills},
        capture_output=True,
        text=True,
        timeout=patient(300),
    )
    assert done.returncode == 0, done.stderr
    assert len(list(died.iterdir())) == 2, "killed twice"
    own, mirrored = values(home / "local", "out"), values(tmp_path / "other", "mirror")
    assert own == Counter(range(RECORDS))
    assert mirrored.keys() == own.keys()
    assert mirrored.total() < 2 * RECORDS, "of what was committed nothing is sent again"
    assert sum(values(home / "local", "sums")) == sum(range(RECORDS))


LEAVING = """
import os
from pathlib import Path

import grete


class Leave(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        seen = Path(__file__).with_name("seen")
        if envelope.message == 100 and not seen.exists():
            seen.touch()
            os._exit(0)
        collector.send("local.out", envelope.message)
"""


def test_an_application_that_ends_the_process_with_code_0_has_not_done_its_work(tmp_path: Path) -> None:
    """It was believed: the job was done, and three quarters of its records were not read."""
    home = tmp_path / "home"
    (tmp_path / "leave.py").write_text(LEAVING)
    config = tmp_path / "job.properties"
    config.write_text(
        "job.name=leave\ntask.class=leave:Leave\ntask.inputs=local.in\ntask.outputs=local.out\n"
        "systems.local.samza.offset.default=oldest\nsystems.local.samza.msg.serde=json\n"
        "cluster-manager.container.retry.longest-pause.ms=100\ntask.max.records.per.batch=50\n"
        f"job.application.path={tmp_path}\n"
    )
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        local.create_stream(StreamSpec("in", 1))
        local.append("in", [Message(None, b"%d" % i, 1, 0) for i in range(RECORDS)])
    done = subprocess.run(
        [sys.executable, "-m", "grete.testing.sparkless", "--until-drained", "--config", str(config)],
        env={**os.environ, "GRETE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=patient(300),
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen").exists()
    assert values(home / "local", "out") == Counter(range(RECORDS))
    assert "its process ended with code 0, and not by the container" in done.stderr


def values(directory: Path, stream: str) -> Counter[int]:
    """How often each value is in a stream."""
    with closing(LocalSystem(directory, SystemClock())) as local:
        return Counter(
            json.loads(value)
            for partition in range(local.partition_count(stream))
            for _, batch in local.read(stream, partition, 0)
            for value in batch.column(1).to_pylist()
        )
