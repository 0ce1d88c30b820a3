"""Lineages of pipelines, with their state, on a real HDFS, where no machine of the job has any of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.cluster_job import ClusterJob
from tests.support.hdfs_files import files_of, grete

from grete.cli.main import main
from grete.config.key_tables.job import LINEAGE_DIR
from grete.errors import ConfigError, FilesUnreachable
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.spark.lineage.decision import LineageInfo
from grete.spark.lineage.hadoop_files import HadoopLocation
from grete.spark.lineage.offset_log import SparkProgress
from grete.spark.lineage.on_hadoop import HadoopLineages
from grete.spark.lineage.parted_sources import with_more
from grete.spark.lineage.source_log import record_after
from grete.systems.local.system import LocalSystem, Message
from grete.testing.chaos.components import descendants
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.hdfs import HdfsCluster
from grete_workbench.spark_cluster import SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(400)]
NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
KEYS = 10
KILLS = (
    *("lineage.locked:kill", "lineage.described:kill", "lineage.current:kill"),
    *("batch.after-run:kill", "commit.in-transaction:kill:2", "commit.after-transaction:kill:2"),
)
"""By night: each costs a start of Spark on the cluster."""
PIPELINE = """
import grete

class Counting(grete.DataFramePipeline):
    output_mode = "update"

    def build(self, inputs):
        [frame] = inputs.values()
        counts = frame.groupBy(frame["key"].cast("string").alias("key")).count()
        return {"OUTPUT": counts}
"""


@pytest.fixture
def job(
    kafka: KafkaCluster, isolated_cluster: SparkCluster, hdfs: HdfsCluster, tmp_path: Path
) -> Iterator[ClusterJob]:
    made = ClusterJob(kafka.bootstrap, isolated_cluster, tmp_path)
    made.write("counting.py", PIPELINE.replace("OUTPUT", f"kafka.{made.output}"))
    made.config |= {
        "app.class": "counting:Counting",
        "job.lineage.dir": f"{hdfs.bootstrap}/grete lineages",
        "task.max.records.per.batch": "100",
        "cluster-manager.container.retry.count": "-1",
    }
    yield made
    isolated_cluster.ensure_running()
    hdfs.ensure_running()


def counts(job: ClusterJob) -> dict[str, list[object]]:
    return {key: [one["count"] for one in records] for key, records in job.outputs().items()}


@pytest.mark.nightly  # 140 s; `make test` loses the same on a disk, and reads lineages on HDFS
def test_state_on_hdfs_goes_on_when_the_driver_is_killed_and_its_machine_and_all_executors_are_lost(
    job: ClusterJob, isolated_cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died, kills = tmp_path / "died", KILLS if NIGHTLY else KILLS[1:2]
    died.mkdir()
    monkeypatch.setenv("GRETE_FAILPOINT", ",".join(kills))
    monkeypatch.setenv("GRETE_FAILPOINT_ONCE", str(died))
    monkeypatch.setenv("GRETE_FAILPOINT_CONTAINER", "0")
    job.fill(600, keys=KEYS)
    process = job.start()
    said, _ = process.communicate(timeout=patient(300))
    assert process.returncode == 0, said + job.log()
    assert len(list(died.iterdir())) == len(kills), "all were reached"
    assert counts(job) == {f"key{key}": list(range(10, 61, 10)) for key in range(KEYS)}

    for worker in isolated_cluster.workers:
        isolated_cluster.kill_machine(worker)
    isolated_cluster.ensure_running()
    shutil.rmtree(job.home)
    job.home.mkdir()
    job.fill(100, keys=KEYS, first=600)
    code, said = job.run()
    assert code == 0, said
    assert "continuing lineage" in job.log()
    assert counts(job) == {f"key{key}": list(range(10, 71, 10)) for key in range(KEYS)}


@pytest.mark.nightly
def test_a_driver_that_was_paused_in_a_batch_and_wakes_beside_its_successor_changes_nothing(
    job: ClusterJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No lock of files keeps the two apart there, as on two machines."""
    paused = tmp_path / "paused"
    paused.mkdir()
    job.config |= {"spark.master": "local[2]", "job.coordinator.lease.ttl.ms": "3000"}
    job.until_drained = False
    job.fill(600, keys=KEYS)
    monkeypatch.setenv("GRETE_FAILPOINT", "batch.after-run:stop:3")
    monkeypatch.setenv("GRETE_FAILPOINT_ONCE", str(paused))
    monkeypatch.setenv("GRETE_FAILPOINT_CONTAINER", "0")
    first = job.start()
    eventually(lambda: list(paused.iterdir()), "the pause", within_s=120, context=job.log)
    [container] = (pid for pid in descendants(first.pid) if is_container(pid))
    first.kill()
    first.wait()
    monkeypatch.delenv("GRETE_FAILPOINT")

    job.home, job.until_drained = tmp_path / "of another machine", True
    code, said = job.run("--standby")
    assert code == 0, said
    assert "continuing lineage" in job.log()
    expected = {f"key{key}": list(range(10, 61, 10)) for key in range(KEYS)}
    assert counts(job) == expected
    os.kill(container, signal.SIGCONT)
    eventually(lambda: not is_container(container), "the end of the one that was succeeded", within_s=120)
    assert counts(job) == expected
    job.fill(100, keys=KEYS, first=600)
    code, said = job.run()
    assert code == 0, said
    assert "starting lineage" not in job.log()
    assert counts(job) == {f"key{key}": list(range(10, 71, 10)) for key in range(KEYS)}


@pytest.mark.nightly
@pytest.mark.parametrize("number", [1, 2])
def test_a_node_that_is_away_while_a_job_runs_is_waited_for(
    job: ClusterJob, hdfs: HdfsCluster, number: int
) -> None:
    """The NameNode, or the only DataNode: for half a minute nothing of a batch can be written."""
    job.config |= {"spark.master": "local[2]"}
    job.until_drained = False
    job.fill(300, keys=KEYS)
    running = job.start()

    def reached(each: int) -> bool:
        found = counts(job)
        return len(found) == KEYS and all(records[-1:] == [each] for records in found.values())

    try:
        eventually(lambda: reached(30), "the first counts", within_s=120, context=job.log)
        hdfs.kill(number)
        job.fill(200, keys=KEYS, first=300)
        time.sleep(30)
        hdfs.ensure_running()
        job.fill(100, keys=KEYS, first=500)
        eventually(lambda: reached(60), "the counts of all", within_s=240, context=job.log)
    finally:
        hdfs.ensure_running()
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=patient(120))
    assert running.returncode == 0, said + job.log()
    for key, records in counts(job).items():
        assert records == sorted(set(records)), f"{key}: each count once, and none taken back"  # type: ignore[type-var]
    assert job.log().count("starting lineage") == 1, "its state was not given up"


def is_container(pid: int) -> bool:
    with suppress(OSError):
        return b"grete.spark.container" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_lineages_are_kept_there_as_on_a_disk(spark: SparkSession, hdfs: HdfsCluster) -> None:
    place = f"{hdfs.bootstrap}/as on a disk/job-1/container-0/lineages"
    lineages = HadoopLineages.of(spark, place)
    assert lineages.current() is None
    begun = [
        lineages.start(LineageInfo("", {"kafka.in.0": number}, "the plan", ("kafka.in",)))
        for number in range(6)
    ]
    assert HadoopLineages.of(spark, place).current() == begun[-1]
    assert lineages.progress(begun[-1]) is not None, "its folder is there"
    assert [lineages.progress(one) is not None for one in begun] == [False, False, True, True, True, True]
    assert lineages.planned_settings(begun[-1]) == {}
    other = LineageInfo(begun[-1].id, {"kafka.in.0": 5}, "the plan", ("kafka.in",), "an aggregation")
    lineages.go_on(other)
    assert lineages.current() == other
    (lineages._root / "current.json").write_bytes(b"{")
    assert lineages.current() is None


def test_a_lineage_there_goes_on_with_an_input_that_came_and_no_predecessor_plans_meanwhile(
    spark: SparkSession, hdfs: HdfsCluster
) -> None:
    query = Path(__file__).parents[1] / "unit" / "migration" / "spark_checkpoints" / "spark-4.2.0-stateful"
    lineages = HadoopLineages.of(spark, f"{hdfs.bootstrap}/wide/job-1/container-0/lineages")
    before = lineages.start(
        LineageInfo("", {"k.views.0": 0}, "the plan", ("k.views",), "a count"), taken_over=query
    )
    there, old = lineages.progress(before), lineages.spark_checkpoint(before)
    assert isinstance(there, SparkProgress)
    assert there.planned == there.committed
    next_one = f"{before.id}/spark/offsets/{there.planned + 1}"
    of_a_predecessor = record_after(old, there.planned, {"0": b'{"views":{"0":11,"1":10}}'}, now_ms=4)
    lineages._add(next_one, of_a_predecessor)
    lineages._add(next_one, b"another one")
    assert (lineages._root / next_one).read_bytes() == of_a_predecessor, "what is planned is never replaced"
    sources = ("k.views", "k.more")
    parts = with_more(before.sources, sources)
    assert parts is not None
    wide = lineages.widen(replace(before, sources=sources), parts, now_ms=5)
    assert lineages.current() == wide
    found = lineages.progress(wide)
    assert isinstance(found, SparkProgress)
    assert found.planned_end is not None
    assert found.planned_end.next_offsets == {"k.views.0": 11, "k.views.1": 10}
    assert found.committed_end == there.committed_end
    assert not old.is_dir()


@pytest.mark.parametrize("is_there", [True, False], ids=["reached", "away"])
def test_a_deleted_job_takes_its_lineages_along_or_names_them(
    spark: SparkSession,
    hdfs: HdfsCluster,
    home: Path,
    system: LocalSystem,
    capsys: pytest.CaptureFixture[str],
    is_there: bool,
) -> None:
    folder = f"{hdfs.bootstrap}/deleted" if is_there else "hdfs://127.0.0.1:1/deleted"
    config = {
        "job.name": "counting",
        "job.coordinator.system": "local",
        "app.class": "a:B",
        "task.inputs": "local.in",
        LINEAGE_DIR.name: folder,
        "spark.hadoop.ipc.client.connect.max.retries": "0",
    }
    with open_job(JobId("counting"), must_exist=False) as handle:
        handle.stream.write_config(config, run_id="run-1", reason="")
    place = f"{folder}/counting-1"
    others = HadoopLineages.of(spark, f"{hdfs.bootstrap}/deleted/other-1/container-0/lineages")
    begun = others.start(LineageInfo("", {"local.in.0": 0}, "the plan"))
    if is_there:
        HadoopLineages.of(spark, f"{place}/container-0/lineages").start(
            LineageInfo("", {"local.in.0": 0}, "the plan")
        )
        assert files_of(spark, place)
    assert main(["job", "delete", "--job", "counting"]) == 0
    assert f"lineages            {place}" in capsys.readouterr().out
    assert main(["job", "delete", "--job", "counting", "--execute"]) == 0
    said = capsys.readouterr()
    assert said.err == f"grete: asking Spark for {place}\n"
    assert (f"lineages at {place} too: remove them by hand" in said.out) is not is_there
    assert not HadoopLocation.of(spark, f"{hdfs.bootstrap}/deleted/counting-1", "").is_dir()
    assert others.current() == begun
    assert main(["job", "delete", "--job", "counting"]) == 1, "it is gone"


@pytest.mark.nightly  # a cluster of its own for a message
def test_a_place_that_does_not_answer_or_that_spark_does_not_know_is_named(
    spark: SparkSession, hdfs: HdfsCluster
) -> None:
    lineages = HadoopLineages.of(spark, f"{hdfs.bootstrap}/away")
    begun = lineages.start(LineageInfo("", {"kafka.in.0": 0}, "the plan"))
    hdfs.kill(1)
    try:
        with pytest.raises(FilesUnreachable, match=f"{LINEAGE_DIR.name}: {hdfs.bootstrap}/away"):
            lineages.current()
        with pytest.raises(FilesUnreachable):
            lineages.progress(begun)
    finally:
        hdfs.ensure_running()
    assert lineages.current() == begun
    with pytest.raises(ConfigError, match=r"spark\.jars\.packages"):
        HadoopLineages.of(spark, "nosuch://bucket/folder")
    with pytest.raises(FilesUnreachable, match="UnknownHostException"):
        HadoopLineages.of(spark, "hdfs://names.invalid/folder")
    with pytest.raises(ConfigError, match="Name a folder"):
        HadoopLineages.of(spark, f"{hdfs.bootstrap}/away/current.json/folder")


WITH_FILES = """
import grete

class WithFiles(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs):
        more = self.context.read_stream("text", path=self.context.config["app.folder"], schema="value string")
        return inputs["local.in"].select("value").unionByName(more.selectExpr("CAST(value AS BINARY) AS value"))
"""


@pytest.mark.nightly  # 47 s; `test_lineages_are_kept_there_as_on_a_disk` reads the same files
def test_offsets_of_sources_of_sparks_own_are_shown_though_the_lineage_is_on_hdfs(
    spark: SparkSession,
    hdfs: HdfsCluster,
    home: Path,
    system: LocalSystem,
    capsys: pytest.CaptureFixture[str],
) -> None:
    system.create_stream(StreamSpec("in", 2))
    system.append("in", [Message(b"k", b"v", 1, partition=partition) for partition in (0, 1)])
    (home / "with_files.py").write_text(WITH_FILES)
    (home / "lines").mkdir()
    (home / "lines" / "first.txt").write_text("a line\n")
    config = {
        "job.name": "with-files",
        "job.application.path": str(home),
        "app.class": "with_files:WithFiles",
        "app.folder": str(home / "lines"),
        "task.inputs": "local.in",
        "task.outputs": "local.out",
        "systems.local.samza.offset.default": "oldest",
        "job.lineage.dir": f"{hdfs.bootstrap}/with files/",
        "spark.master": "local[2]",
    }
    (home / "job.properties").write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    done = grete("run", "--until-drained", "--quiet", "--config", str(home / "job.properties"))
    assert done.returncode == 0, done.stderr

    def shown(*words: str) -> tuple[dict[str, Any], str]:
        assert main(["checkpoint", "show", "--job", "with-files", *words, "-o", "json"]) == 0
        captured = capsys.readouterr()
        return json.loads(captured.out), captured.err

    place = f"{hdfs.bootstrap}/with files/with-files-1"
    document, said = shown()
    assert [one["foreign_offsets"] for one in document.values()] == [{"1": '{"logOffset":0}'}] * 2
    assert said == f"grete: asking Spark for {place}\n"
    hdfs.kill(1)
    try:
        document, said = shown("--task", "Partition 0")
        assert document["Partition 0"]["offsets"] == {"local.in.0": "0"}
        assert document["Partition 0"]["foreign_offsets"] is None
        [_, problem] = said.splitlines()
        assert f"are not shown of 1 tasks: {LINEAGE_DIR.name}: {place}: java." in problem
        assert main(["checkpoint", "export", "--job", "with-files"]) == 0
        assert not capsys.readouterr().err, "nothing is asked for offsets that are not exported"
    finally:
        hdfs.ensure_running()
