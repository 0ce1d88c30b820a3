"""Isolated executors of DataFrame pipelines: their state, and their functions in the application's environment."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.fault.test_isolated_executors import BESIDE, SECRET
from tests.support.client_environment import (
    NEWER_WHEELS,
    WHEELS,
    environment_of_a_client,
    package_of_a_client,
)
from tests.support.cluster_job import ClusterJob

from grete.packages.verify import verify
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, patient
from grete_workbench.spark_cluster import SparkCluster

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def job(kafka: KafkaCluster, isolated_cluster: SparkCluster, tmp_path: Path) -> Iterator[ClusterJob]:
    made = ClusterJob(kafka.bootstrap, isolated_cluster, tmp_path)
    made.write("beside.py", BESIDE)
    yield made
    isolated_cluster.ensure_running()


def isolate(job: ClusterJob, environment: Path) -> None:
    job.config |= {
        "job.split.deployment.enabled": "true",
        "job.application.environment": str(environment),
    }


PIPELINE = """
import beside
import grete
from pyspark.sql import functions as F

class Counting(grete.DataFramePipeline):
    output_mode = "update"

    def build(self, inputs):
        [frame] = inputs.values()
        config = self.context.config
        doubled = F.udf(lambda count: beside.doubled(count) if config["words.secret"] else -1, "long")
        counts = frame.groupBy(frame["key"].cast("string").alias("key")).count()
        return {"OUTPUT": counts.select("key", "count", doubled("count").alias("doubled")), **KEPT}
"""


def counting_pipeline(job: ClusterJob, *, files: bool = False) -> None:
    kept = "{'kept': frame.select('key')}" if files else "{}"
    job.write("counting.py", PIPELINE.replace("OUTPUT", f"kafka.{job.output}").replace("KEPT", kept))
    (job.home / "secret").write_text(SECRET)
    job.config |= {
        "app.class": "counting:Counting",
        "words.secret": f"${{file:{job.home}/secret}}",
    }


def test_a_pipeline_that_keeps_state_is_refused_where_executors_do_not_share_its_folder(
    job: ClusterJob,
) -> None:
    counting_pipeline(job, files=True)
    job.config |= {"outputs.kept.format": "parquet", "outputs.kept.path": str(job.home / "kept")}
    job.fill(100)
    code, said = job.run()
    assert code == 2, said
    assert "job.lineage.dir: the pipeline keeps state (Aggregate" in said
    assert "outputs.kept.path: output 'kept' is files, which executors write in" in said
    assert said.count("2 of 2 executors do not share that folder with the driver") >= 2
    assert "it does not see what the driver writes there" in said
    assert job.outputs() == {}


@pytest.mark.nightly  # in `make test` state is on HDFS, in test_lineages_on_hdfs.py
@pytest.mark.parametrize("is_isolated", [False, True])
def test_a_pipeline_that_keeps_state_in_a_shared_folder_goes_on_when_all_executors_were_lost(
    job: ClusterJob, isolated_cluster: SparkCluster, is_isolated: bool
) -> None:
    """Its functions find modules and secrets; its state has a partition for each core."""
    counting_pipeline(job)
    shared = isolated_cluster.shared
    if is_isolated:
        own = (job.application / "counting.py").read_text()
        job.write("counting.py", own.replace("= self.context.config", "= dict(self.context.config)"))
        isolate(job, environment_of_a_client(shared / "another"))
    job.config["job.lineage.dir"] = str(shared)
    job.fill(100)
    code, said = job.run()
    assert code == 0, said
    for worker in isolated_cluster.workers:
        isolated_cluster.kill_machine(worker)
    isolated_cluster.ensure_running()
    job.fill(100, first=100)
    code, said = job.run()
    assert code == 0, said
    last = {key: records[-1] for key, records in job.outputs().items()}
    assert last == {f"key{key}": {"count": 20, "doubled": 40} for key in range(10)}
    states = {path.name for path in shared.glob(f"{job.name}-1/container-0/lineages/*/spark/state/0/[0-9]*")}
    assert states == {"0", "1"}


BESIDE_THE_FRAMEWORK = """
import importlib.util
import json
import sys

import beside
import grete
import orjson
import pandas
from pyspark.sql import functions as F

def seen():
    alone = importlib.util.find_spec("grete.spark") is None
    return [sys.prefix, orjson.__version__, alone, beside.doubled(21)]

class Telling(grete.DataFramePipeline):
    def build(self, inputs):
        [frame] = inputs.values()
        @F.udf("string")
        def told(by_pandas):
            return json.dumps({"plain": seen(), "by_pandas": json.loads(by_pandas)})

        @F.pandas_udf("string")
        def by_pandas(values: pandas.Series) -> pandas.Series:
            return pandas.Series([json.dumps(seen())] * len(values))

        value = told(by_pandas(frame["value"])).alias("value")
        return {"OUTPUT": frame.select("key", value)}
"""


def telling(job: ClusterJob, environment: Path) -> None:
    job.write("telling.py", BESIDE_THE_FRAMEWORK.replace("OUTPUT", f"kafka.{job.output}"))
    job.config["app.class"] = "telling:Telling"
    isolate(job, environment)


def told(job: ClusterJob) -> list[list[object]]:
    """What functions have said of their interpreter, by rows and by pandas, for each record."""
    records = [record for records in job.outputs().values() for record in records]
    return [cast("list[object]", said) for record in records for said in record.values()]


@pytest.mark.nightly  # 80 s of a processor; one environment on executors is that of test_isolated_executors.py
@pytest.mark.parametrize(
    "wheels", [WHEELS, *(NEWER_WHEELS / one for one in ("4.1.2", "4.2.0"))], ids=lambda wheels: wheels.name
)
def test_functions_of_a_pipeline_run_in_the_applications_environment_on_executors(
    job: ClusterJob, isolated_cluster: SparkCluster, wheels: Path
) -> None:
    """With the oldest client that is supported, and newer ones."""
    environment = environment_of_a_client(isolated_cluster.shared / f"environment-{job.name}", wheels)
    telling(job, environment)
    job.fill(100)
    code, said = job.run()
    assert code == 0, said
    assert told(job) == [[str(environment), "3.10.18", True, 42]] * 200


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_functions_of_a_pipeline_find_the_package_that_is_nowhere_else_any_more(
    job: ClusterJob, isolated_cluster: SparkCluster, tmp_path: Path
) -> None:
    """It was deleted when the first records had been seen; then all executors are lost with their disks."""
    telling(job, tmp_path / "built" / "packages" / "__package")
    built = package_of_a_client(tmp_path / "built", job.application)
    del job.config["job.application.path"]
    job.until_drained = False
    job.fill(100)
    process = job.start()
    try:
        eventually(lambda: len(told(job)) == 200, "the first records", within_s=150, context=job.log)
        shutil.rmtree(tmp_path / "built")
        for worker in isolated_cluster.workers:
            isolated_cluster.kill_machine(worker)
        isolated_cluster.ensure_running()
        job.fill(100, first=100)
        eventually(lambda: len(told(job)) >= 400, "records of others", within_s=150, context=job.log)
    finally:
        process.terminate()
        process.communicate(timeout=patient(60))
    assert {len(records) for records in job.outputs().values()} == {20}
    seen = told(job)
    [prefix] = {str(one.pop(0)) for one in seen}
    assert prefix.endswith(f"environments/{built.manifest.digest[:16]}")
    assert seen == [["3.10.18", True, 42]] * 400


HARMFUL = """
import os
from pathlib import Path

import grete
from pyspark.sql import functions as F

class Harmful(grete.DataFramePipeline):
    def build(self, inputs):
        [frame] = inputs.values()

        @F.udf("string")
        def harmed(value):
            print("to stdout", flush=True)
            if Path("MARK").exists():
                return value
            if not IS_ALWAYS:
                Path("MARK").touch()
            os._exit(7)

        return {"OUTPUT": frame.select("key", harmed(frame["value"].cast("string")).alias("value"))}
"""


@pytest.mark.nightly
@pytest.mark.parametrize("is_always", [False, True])
def test_a_function_that_ends_its_process_on_an_executor_is_repeated_and_named_if_it_always_does(
    job: ClusterJob, isolated_cluster: SparkCluster, is_always: bool
) -> None:
    mark = str(isolated_cluster.shared / job.name)
    environment = environment_of_a_client(isolated_cluster.shared / f"environment-{job.name}")
    text = HARMFUL.replace("OUTPUT", f"kafka.{job.output}").replace("MARK", mark)
    job.write("telling.py", text.replace("IS_ALWAYS", str(is_always)))
    job.config["app.class"] = "telling:Harmful"
    isolate(job, environment)
    if is_always:
        job.config["cluster-manager.container.retry.count"] = "0"
    job.fill(100)
    code, said = job.run()
    counts = {key: len(records) for key, records in job.outputs().items()}
    if is_always:
        assert (code, counts) == (1, {}), said
        assert (
            "a Python process on 127.0.0.1 ended in the middle of its work, each time that it was tried"
            in said
        )
    else:
        assert code == 0, said
        assert counts == {f"key{key}": 10 for key in range(10)}


LATER = """
import sys
from pathlib import Path

import grete
from pyspark.sql import functions as F

class Later(grete.DataFramePipeline):
    def build(self, inputs):
        [frame] = inputs.values()

        @F.udf("string")
        def seen(value):
            if Path("MARK").exists():
                import seldom
            return '"' + sys.prefix + '"'

        return {"OUTPUT": frame.select("key", seen(frame["value"]).alias("value"))}
"""


@pytest.mark.nightly
@pytest.mark.timeout(500)
def test_a_package_that_is_damaged_on_one_worker_is_named_with_its_place_and_unpacked_again(
    job: ClusterJob, isolated_cluster: SparkCluster, tmp_path: Path
) -> None:
    """A module is gone and a file has changed while a pipeline runs; nothing is lost or doubled."""
    mark = isolated_cluster.shared / job.name
    job.write("later.py", LATER.replace("MARK", str(mark)).replace("OUTPUT", f"kafka.{job.output}"))
    job.write("seldom.py", "")
    built = package_of_a_client(tmp_path / "built", job.application)
    del job.config["job.application.path"]
    job.config["app.class"] = "later:Later"
    isolate(job, tmp_path / "built" / "packages" / "__package")
    job.until_drained = False
    job.fill(100)

    def seen() -> list[object]:
        return [record for records in job.outputs().values() for record in records]

    process = job.start()
    try:
        eventually(lambda: len(seen()) == 100, "the first records", within_s=150, context=job.log)
        harmed = isolated_cluster.workers[0]
        pid = isolated_cluster.nodes[harmed - 1].running_pid()
        package = Path(f"/proc/{pid}/root{seen()[0]}")
        (package / "lib" / "seldom.py").unlink()
        (package / "lib" / "later.py").write_text("raise SystemExit")
        mark.touch()
        job.fill(100, first=100)
        eventually(lambda: len(seen()) >= 200, "the others", within_s=150, context=job.log)
    finally:
        process.terminate()
        process.communicate(timeout=patient(60))
    job.until_drained = True
    job.fill(100, first=200)
    code, said = job.run()
    assert code == 0, said
    assert verify(package, digest=built.manifest.digest).problems == ()
    assert re.search(
        rf"executor on \S+ \(.*node{harmed}/work.*is damaged and unpacked again: .*lib/seldom\.py: is missing",
        said,
    ), said
    assert job.committed() == {f"key{key}": 30 for key in range(10)}, "lost or doubled"


LICENSED = """
from pathlib import Path

if not Path("HERE").exists():
    raise RuntimeError("there is no licence on this machine")

def seen(value):
    return value
"""
USING = """
import sys

import grete
from pyspark.sql import functions as F

sys.path.append("HERE")
import MODULE

class Using(grete.DataFramePipeline):
    def build(self, inputs):
        [frame] = inputs.values()
        value = F.udf(MODULE.seen, "string")(frame["value"].cast("string"))
        return {"OUTPUT": frame.select("key", value.alias("value"))}
"""


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("module", "ended", "words"),
    [
        (
            "licensed",
            1,
            ("code 8: ApplicationError", "RuntimeError: there is no licence", "licensed.py, line 5"),
        ),
        ("elsewhere", 2, ("there is no module 'elsewhere' on 127.0.0.1", "folder of job.application.path")),
    ],
)
def test_a_module_of_a_function_that_only_the_driver_can_import_is_named_and_it_goes_on_when_that_is_mended(
    job: ClusterJob, isolated_cluster: SparkCluster, module: str, ended: int, words: tuple[str, ...]
) -> None:
    """One raises on executors when it is imported, one is not there. Neither is tried again before that."""
    here = str(job.home)
    text = USING.replace("OUTPUT", f"kafka.{job.output}").replace("MODULE", module)
    job.write("using.py", text.replace("HERE", here))
    if module == "licensed":
        job.write("licensed.py", LICENSED.replace("HERE", here))
    else:
        (job.home / "elsewhere.py").write_text(LICENSED.replace("HERE", here))
    job.config["app.class"] = "using:Using"
    isolate(job, environment_of_a_client(isolated_cluster.shared / f"environment-{job.name}"))
    job.fill(100)
    code, said = job.run()
    assert code == ended, said
    assert [one for one in words if one not in said] == [], said
    assert re.search(r"on 127\.0\.0\.1 \(executor \d+\)", said), said
    assert said.count("container-exited") == 1, "it was not tried again"
    assert job.outputs() == {}
    job.write(f"{module}.py", "def seen(value):\n    return value\n")
    code, said = job.run()
    assert code == 0, said
    assert {key: len(records) for key, records in job.outputs().items()} == {
        f"key{key}": 10 for key in range(10)
    }
