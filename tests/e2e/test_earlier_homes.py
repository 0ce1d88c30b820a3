"""Homes and topics that released versions wrote are continued (docs/stability.md). Each release adds its own: to
`homes` a home, to `brokers` what one broker has kept, whole, with its consumer groups and transactional ids.

Either holds a job that counted the keys of twenty records (`k0` six times, `k1` and `k2` seven times each), whose
configuration was changed once, and whose startpoint has the last two records, of `k1` and `k2`, counted once more.
A new version's are made with its own `grete stream create`, `append`, `grete.testing.sparkless --until-drained`,
`grete config set` and `grete startpoint set`, then packed: the home, or the stopped broker's `node1/log`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import patient

pytestmark = pytest.mark.timeout(120)
HOMES, BROKERS = (Path(__file__).with_name(name) for name in ("homes", "brokers"))
WORDS = """
from grete import StreamTask
class Words(StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("SYSTEM.counts", count, key=envelope.key)
"""
PROPERTIES = """
job.name=words
task.class=words:Words
task.inputs=SYSTEM.lines
task.outputs=SYSTEM.counts
task.commit.ms=50
systems.SYSTEM.samza.offset.default=oldest
systems.SYSTEM.samza.key.serde=string
systems.SYSTEM.samza.msg.serde=json
stores.counts.changelog=SYSTEM.words-counts
stores.counts.key.serde=string
stores.counts.msg.serde=json
job.application.path=.
"""
ON_KAFKA = """
job.coordinator.system=kafka
systems.kafka.samza.factory=kafka
systems.kafka.producer.bootstrap.servers={bootstrap}
systems.kafka.default.stream.replication.factor=1
job.coordinator.replication.factor=1
task.checkpoint.replication.factor=1
stores.counts.changelog.replication.factor=1
"""
FOR_EVER = {"offsets.retention.minutes": "2147483647", "transactional.id.expiration.ms": "2147483647"}
"""The brokers' own defaults are a week, which is over."""


def versions(kept: Path) -> list[str]:
    return sorted(path.name.removesuffix(".tar.gz") for path in kept.glob("*.tar.gz"))


def continued(folder: Path, system: str, more: str = "", *, last: str) -> None:
    """The job goes on with one more record and the two of its startpoint, and its past is still told."""
    (folder / "words.py").write_text(WORDS.replace("SYSTEM", system))
    (config := folder / "words.properties").write_text(PROPERTIES.replace("SYSTEM", system) + more)

    def grete(*words: str, module: str = "grete.cli.main", given: str = "") -> str:
        ran = subprocess.run(
            [sys.executable, "-m", module, *words],
            input=given,
            env={**os.environ, "GRETE_HOME": str(folder / "home")},
            capture_output=True,
            text=True,
            timeout=patient(60),
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    lines, counts, named = f"{system}.lines", f"{system}.counts", ("--config", str(config))
    grete("stream", "append", lines, *named, given='{"key": "k0", "value": 1}\n')
    grete(*named, "--until-drained", module="grete.testing.sparkless")

    dumped = grete("stream", "dump", counts, "--job", "words").splitlines()
    known = [(one["key"], one["value"]) for one in map(json.loads, dumped)]
    assert known[20:] == [("k1", "8"), ("k2", "8"), ("k0", "7")]
    shown = grete("checkpoint", "show", "--job", "words").strip()
    assert shown == f"tasknames.Partition {last[0]}.systems.{system}.streams.lines.partitions.{last}"
    events = [one["event"] for one in json.loads(grete("history", "--job", "words", "-o", "json"))]
    assert events.count("deployment") == 2
    assert "startpoint" in events
    assert events.count("finished") == 2
    assert len(json.loads(grete("config", "history", "--job", "words", "-o", "json"))) >= 2


@pytest.mark.parametrize("version", versions(HOMES))
@pytest.mark.parametrize("is_store_lost", [False, True], ids=["with its store", "without"])
def test_a_job_goes_on_with_its_offsets_state_startpoints_and_history(
    version: str, is_store_lost: bool, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with tarfile.open(HOMES / f"{version}.tar.gz") as archive:
        archive.extractall(home, filter="data")
    if is_store_lost:
        (home / "jobs/words-1/stores/Partition_1-24ba0185/counts.db").unlink()
    continued(tmp_path, "local", last="1 = 20")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", versions(BROKERS))
@pytest.mark.parametrize("retention", [FOR_EVER, {}], ids=["with its groups", "when they are forgotten"])
def test_a_job_on_kafka_goes_on_with_its_topics_from_another_home(
    version: str, retention: dict[str, str], tmp_path: Path
) -> None:
    with tarfile.open(BROKERS / f"{version}.tar.gz") as archive:
        archive.extractall(tmp_path / "kafka", filter="data")
    broker = KafkaCluster(tmp_path / "kafka", settings=retention)
    broker.start()
    try:
        continued(tmp_path, "kafka", ON_KAFKA.format(bootstrap=broker.bootstrap), last="0 = 22")
    finally:
        broker.stop()
