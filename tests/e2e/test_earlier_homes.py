"""Homes that released versions wrote are continued (docs/stability.md). Each release adds its own to `homes`.

A home holds a job that counted the keys of twenty records (`k0` six times, `k1` and `k2` seven times each), whose
configuration was changed once, and whose startpoint has the last two records, of `k1` and `k2`, counted once more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from grete.testing.waiting import patient

pytestmark = pytest.mark.timeout(120)
HOMES = Path(__file__).parent / "homes"
WORDS = """
from grete import StreamTask
class Words(StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.counts", count, key=envelope.key)
"""
PROPERTIES = """
job.name=words
task.class=words:Words
task.inputs=local.lines
task.outputs=local.counts
task.commit.ms=50
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.changelog=local.words-counts
stores.counts.key.serde=string
stores.counts.msg.serde=json
job.application.path={folder}
"""


@pytest.mark.parametrize(
    "version", sorted(path.name.removesuffix(".tar.gz") for path in HOMES.glob("*.tar.gz"))
)
@pytest.mark.parametrize("is_store_lost", [False, True], ids=["with its store", "without"])
def test_a_job_goes_on_with_its_offsets_state_startpoints_and_history(
    version: str, is_store_lost: bool, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with tarfile.open(HOMES / f"{version}.tar.gz") as archive:
        archive.extractall(home, filter="data")
    if is_store_lost:
        (home / "jobs/words-1/stores/Partition_1-24ba0185/counts.db").unlink()
    (tmp_path / "words.py").write_text(WORDS)
    (config := tmp_path / "words.properties").write_text(PROPERTIES.format(folder=tmp_path))

    def grete(*words: str, module: str = "grete.cli.main", given: str = "") -> str:
        ran = subprocess.run(
            [sys.executable, "-m", module, *words],
            input=given,
            env={"GRETE_HOME": str(home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=patient(60),
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    grete("stream", "append", "local.lines", "--config", str(config), given='{"key": "k0", "value": 1}\n')
    grete("--config", str(config), "--until-drained", module="grete.testing.sparkless")

    lines = [
        json.loads(line) for line in grete("stream", "dump", "local.counts", "--job", "words").splitlines()
    ]
    assert [(one["key"], one["value"]) for one in lines[20:]] == [("k1", "8"), ("k2", "8"), ("k0", "7")]
    shown = grete("checkpoint", "show", "--job", "words")
    assert shown.strip() == "tasknames.Partition 1.systems.local.streams.lines.partitions.1 = 20"
    events = [one["event"] for one in json.loads(grete("history", "--job", "words", "-o", "json"))]
    assert events.count("deployment") == 2
    assert "startpoint" in events
    assert events.count("finished") == 2
    assert len(json.loads(grete("config", "history", "--job", "words", "-o", "json"))) >= 2
