"""Executors that see nothing of the driver's machine: what they need is brought, or the job is refused by name."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.support.cluster_job import ClusterJob

from grete.config.secret_channel import VARIABLE
from grete.packages.build import build_application
from grete.packages.verify import verify
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.spark_cluster import MASTER, SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(240)]
SECRET = "wonderland-4f1c"  # noqa: S105 - of this test alone
AWAY_S = 60.0
EVENTS = {"enabled": "true", "compress": "false"}
COUNTER = """
import hashlib
import sys
import time
from pathlib import Path

import beside
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
        self.out = context.config["test.out"]
        self.word = hashlib.sha256(context.config["words.secret"].encode()).hexdigest()[:8]
        self.factor = int(Path("factor.txt").read_text())

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        time.sleep(0.001)
        said = {"count": count, "word": self.word, "factor": beside.doubled(self.factor)}
        said["is_alone"] = "pyarrow" not in sys.modules
        collector.send(self.out, said, key=envelope.key)
"""
BESIDE = """
def doubled(number):
    return 2 * number
"""


@pytest.fixture
def job(kafka: KafkaCluster, isolated_cluster: SparkCluster, tmp_path: Path) -> Iterator[ClusterJob]:
    made = ClusterJob(kafka.bootstrap, isolated_cluster, tmp_path)
    made.write("beside.py", BESIDE)
    made.write("factor.txt", "21")
    yield made
    isolated_cluster.ensure_running()


def counting(job: ClusterJob) -> None:
    job.write("counting.py", COUNTER)
    (job.home / "secret").write_text(SECRET)
    job.config |= {
        "task.class": "counting:Counter",
        "test.out": f"kafka.{job.output}",
        "words.secret": f"${{file:{job.home}/secret}}",
        "stores.counts.factory": "grete.store.sqlite",
        "stores.counts.key.serde": "string",
        "stores.counts.msg.serde": "json",
        "stores.counts.changelog.replication.factor": "1",
    }


@pytest.mark.nightly  # 50 s of a processor
@pytest.mark.parametrize("is_isolated", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_job_whose_executors_have_nothing_of_its_machine_is_exact_though_one_is_lost_with_its_disk(
    job: ClusterJob, isolated_cluster: SparkCluster, is_isolated: bool
) -> None:
    counting(job)
    job.config["job.split.deployment.enabled"] = str(is_isolated).lower()
    events = job.home / "events"
    events.mkdir()
    job.config |= {f"spark.eventLog.{key}": value for key, value in EVENTS.items()}
    job.config["spark.eventLog.dir"] = events.as_uri()
    job.log_level = "DEBUG"
    job.fill(6_000)
    process = job.start()
    try:
        eventually(lambda: sum(map(len, job.outputs().values())) > 300, "outputs", within_s=120)
        lines = command_lines()
        isolated_cluster.kill_machine(isolated_cluster.workers[0])
        isolated_cluster.ensure_running()
        said, _ = process.communicate(timeout=patient(150))
    finally:
        process.kill()
    assert process.returncode == 0, said + job.log()
    found = job.outputs()
    counts = {key: [one["count"] for one in records] for key, records in found.items()}
    assert counts == {f"key{key}": list(range(1, 601)) for key in range(10)}
    said_else = {
        (one["word"], one["factor"], one["is_alone"]) for records in found.values() for one in records
    }
    assert said_else == {(hashlib.sha256(SECRET.encode()).hexdigest()[:8], 42, is_isolated)}
    written = [path.read_bytes() for path in files(job.home, isolated_cluster) if path.name != "secret"]
    assert any(b"SparkListenerApplicationStart" in text for text in written)
    assert not any(SECRET.encode() in text for text in (*written, *lines))
    assert not any(VARIABLE.encode() in text for text in (*written, *lines)), (
        "the key to it is not there either"
    )


@pytest.mark.nightly
def test_a_job_is_exact_though_the_master_is_away_for_a_minute(
    job: ClusterJob, isolated_cluster: SparkCluster
) -> None:
    """Executors ask the driver, and not the master, so records are counted meanwhile."""
    counting(job)
    job.until_drained = False
    job.fill(1_000)

    def has_counted(records: int) -> bool:
        return sum(map(len, job.outputs().values())) == records

    process = job.start()
    try:
        eventually(lambda: has_counted(1_000), "the first records", within_s=120)
        began_s = time.monotonic()
        isolated_cluster.pause(MASTER)
        job.fill(1_000, first=1_000)
        eventually(lambda: has_counted(2_000), "records without a master", within_s=AWAY_S)
        eventually(lambda: time.monotonic() - began_s >= AWAY_S, "the minute", within_s=AWAY_S + 10)
        assert process.poll() is None, job.log()
        isolated_cluster.resume(MASTER)
        job.fill(1_000, first=2_000)
        eventually(lambda: has_counted(3_000), "records with it again", within_s=60)
    finally:
        isolated_cluster.ensure_running()
        process.terminate()
        process.communicate(timeout=patient(60))
    counts = {key: [one["count"] for one in records] for key, records in job.outputs().items()}
    assert counts == {f"key{key}": list(range(1, 301)) for key in range(10)}


IN_ITS_PACKAGE = """
import sys
from pathlib import Path

import grete

class Saying(grete.StreamTask):
    def init(self, context):
        self.out = context.config["test.out"]

    def process(self, envelope, collector, coordinator):
        mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
        collector.send(self.out, {"prefix": sys.prefix, "mapped": sorted(mapped)}, key=envelope.key)
"""


def test_an_application_runs_in_the_environment_that_was_brought_to_workers_that_do_not_see_it(
    job: ClusterJob, isolated_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Its modules are in its package, too. Nothing of the interpreter that built it is mapped."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "saying.py").write_text(IN_ITS_PACKAGE)
    (tmp_path / "lock.txt").write_text("# nothing\n")
    built = build_application(
        tmp_path / "out", tmp_path / "lock.txt", Path(sys.executable), tmp_path / "modules"
    )
    del job.config["job.application.path"]
    job.config |= {
        "task.class": "saying:Saying",
        "test.out": f"kafka.{job.output}",
        "job.split.deployment.enabled": "true",
        "job.application.environment": str(built.folder),
    }
    job.fill(40)
    code, said = job.run()
    assert code == 0, said
    found = [record for records in job.outputs().values() for record in records]
    assert len(found) == 40
    unpacked = f"environments/{built.manifest.digest[:16]}"
    assert all(str(record["prefix"]).endswith(unpacked) for record in found), found[0]
    mapped = {path for record in found for path in cast("list[str]", record["mapped"])}
    assert not [path for path in mapped if path.startswith(f"{sys.base_prefix}/") and "python" in path]
    for worker in isolated_cluster.workers:
        pid = isolated_cluster.nodes[worker - 1].running_pid()
        seen = Path(f"/proc/{pid}/root{found[0]['prefix']}")
        assert verify(seen, digest=built.manifest.digest).problems == (), f"on worker {worker}"
        assert [path.name for path in seen.parent.iterdir() if path.is_dir()] == [seen.name]
        work = isolated_cluster.nodes[worker - 1].directory / "work"
        assert not list(work.glob("*/*/bin/python")), "unpacked for an executor, too"


def files(home: Path, cluster: SparkCluster) -> list[Path]:
    logs = [node.directory for node in cluster.nodes]
    return [path for folder in (home, *logs) for path in folder.rglob("*") if path.is_file()]


def command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return found
