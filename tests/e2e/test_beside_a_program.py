"""Stream processors in programs that have a Spark session of their own, or none: nothing of the program's changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from grete.spark.session.kafka_connector import ARTIFACT
from grete.testing.waiting import patient

pytestmark = pytest.mark.spark

JOBS = """
from pyspark.sql import functions as F

import grete


class Zones(grete.DataFramePipeline):
    output = "local.zones"

    def build(self, inputs):
        assert self.context.spark.conf.get("spark.sql.shuffle.partitions") != "7"
        return inputs["local.in"].select(F.current_timezone().alias("value"))


class Copy(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.copies", envelope.message, key=envelope.key)


class Again(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.copies2", envelope.message, key=envelope.key)
"""
PROGRAM = '''
import json, os, sys, threading
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

import grete
from grete.clock import SystemClock
from grete.environment import grete_home
from grete.systems.base import Message
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually
from jobs import Copy, Zones

own, given = sys.argv[1] == "own", json.loads(sys.argv[2])
COMMON = {"job.coordinator.lease.ttl.ms": "5000", "job.debounce.time.ms": "100", "task.inputs": "local.in",
          "systems.local.samza.offset.default": "oldest"}


def state():
    """All that a program may have of Spark, and its environment."""
    found = {"environment": dict(os.environ), "folder": os.getcwd()}
    found["python"] = [id(SparkSession._instantiatedSession), id(SparkSession._activeSession),
                       id(SparkContext._active_spark_context), id(SparkContext._gateway)]
    context = SparkContext._active_spark_context
    if context is None:
        return found
    jvm, spark = context._jvm, SparkSession._instantiatedSession
    sessions = SparkSession._get_j_spark_session_class(jvm)
    hadoop = jvm.java.io.StringWriter()
    jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(context._jsc.hadoopConfiguration(), hadoop)
    properties = jvm.java.lang.System.getProperties()
    return found | {
        "session": spark.conf.getAll,
        "context": sorted(context.getConf().getAll()),
        "of the environment": sorted(str(jvm.org.apache.spark.SparkEnv.get().conf().toDebugString()).splitlines()),
        "hadoop": json.loads(hadoop.toString())["properties"],
        "level": jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString(),
        "jvm": [sessions.getDefaultSession().get().hashCode(), sessions.getActiveSession().get().hashCode()],
        "properties": {key: properties[key] for key in properties if key.startswith("spark.")},
        "queries": [one.name for one in spark.streams.active],
        "files": list(context.listFiles),
        "views": [one.name for one in spark.catalog.listTables("global_temp")],
        "executor": sorted(context.environment.items()),
    }


def differences(old, new):
    if isinstance(old, dict) and isinstance(new, dict):
        return [(name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]
    return [("", old, new)] if old != new else []


def runs(application, output, **more):
    config = {**COMMON, "job.name": output, "task.outputs": f"local.{output}", **given, **more}
    with grete.StreamProcessor(config, application, processor_id="one") as processor:
        eventually(lambda: processor.wait(0.05) or output in streams.streams()
                   and int(streams.offsets(output)[0].upcoming) == 2, "copied")
        if own:
            assert SparkSession.builder.getOrCreate() is spark
            assert SparkSession.getActiveSession() is spark
    return [str(value) for _, batch in streams.read(output, 0, 0) for value in batch.column(1).to_pylist()]


if own:
    spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
             .config("spark.sql.shuffle.partitions", "7").config("spark.hadoop.own.key", "own").getOrCreate())
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1).createOrReplaceGlobalTempView("mine")
    spark.readStream.format("rate").load().writeStream.format("memory").queryName("mine").start()
    assert SparkSession.getActiveSession() is spark

streams = LocalSystem(grete_home() / "local", SystemClock())
streams.create_stream(StreamSpec("in", 1))
streams.append("in", [Message(b"k", b"1", 0), Message(b"k", b"2", 0)])
answer = {}
before = state()
REFUSED = {"spark.executor.heartbeatInterval": "7s", "spark.driver.maxResultSize": "3m"}
ON_KAFKA = {"task.inputs": "kafka.in", "systems.kafka.samza.factory": "kafka"}
if own:
    from grete.config.settings import Settings
    from grete.config.time_zone import local_time_zone
    from grete.spark.session.container_session import build_session

    java = spark._jvm.java.util.TimeZone.getDefault().getID()
    answer["zone of Java and ours"] = [java, local_time_zone(Settings())]
    for name, kafka_system, config in (("asked", None, REFUSED), ("kafka", "kafka", ON_KAFKA)):
        try:
            build_session("refused", Settings.of({**COMMON, **config}), kafka_system=kafka_system)
        except grete.GreteError as error:
            answer[name] = str(error)
for application, output in ((Zones, "zones"), (Copy, "copies")):
    try:
        answer[output] = runs(application, output)
    except grete.GreteError as error:
        answer[output] = str(error)
    after = state()
    answer[output + " changed"] = [
        f"{key} {name}: {old} to {new}"
        for key in {**before, **after}
        for name, old, new in differences(before.get(key), after.get(key))
    ]
if own:
    spark.stop()
Path("answer.json").write_text(json.dumps(answer))
'''
TWO = """
import json, os
from contextlib import ExitStack
from pathlib import Path

import grete
from grete.clock import SystemClock
from grete.environment import grete_home
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import eventually
from jobs import Again, Copy

streams = LocalSystem(grete_home() / "local", SystemClock())
streams.create_stream(StreamSpec("in", 1))
streams.append("in", [Message(b"k", b"1", 0)])
before, outputs = dict(os.environ), ["copies", "copies2"]


with ExitStack() as stack:
    for output, application in zip(outputs, (Copy, Again)):
        config = {"job.name": output, "task.inputs": "local.in", "task.outputs": f"local.{output}",
                  "systems.local.samza.offset.default": "oldest", "job.debounce.time.ms": "100",
                  "spark.master": "local[2]"}
        processor = grete.StreamProcessor(config, application, processor_id="one")
        stack.enter_context(processor)
    for output in outputs:
        eventually(lambda: processor.wait(0.05) or output in streams.streams()
                   and int(streams.offsets(output)[0].upcoming) == 1, "copied")
changed = {name: [before.get(name), os.environ.get(name)]
           for name in {**before, **os.environ} if before.get(name) != os.environ.get(name)}
Path("answer.json").write_text(json.dumps({"changed": changed}))
"""


def _runs(folder: Path, kind: str, config: dict[str, str], program: str = PROGRAM) -> dict[str, Any]:
    (folder / "jobs.py").write_text(JOBS)
    (folder / "program.py").write_text(program)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GRETE_WORKER")}
    done = subprocess.run(
        [sys.executable, "program.py", kind, json.dumps(config)],
        env={
            **environment,
            "PYSPARK_PYTHON": sys.executable,
            "TZ": "CET",
            "GRETE_HOME": str(folder / "home"),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(180),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return found


@pytest.mark.nightly  # the two jobs below share such a session
def test_a_programs_own_session_is_as_before_when_its_processors_have_ended(tmp_path: Path) -> None:
    """A pipeline's and one of StreamTasks. The pipeline has the settings that its job has; what only a context can
    have, and this one has not, is refused before.
    """
    found = _runs(tmp_path, "own", {"spark.sql.session.timeZone": "Asia/Tokyo"})
    assert found["zone of Java and ours"] == ["CET", "CET"]
    assert "spark.executor.heartbeatInterval is '10s' there, and the job needs '7s'" in found["asked"]
    assert "spark.driver.maxResultSize is '1g' there, and the job needs '3m'" in found["asked"]
    assert "SparkSession.builder.config" in found["asked"]
    assert f"spark.jars.packages=org.apache.spark:{ARTIFACT}:{pyspark.__version__}" in found["kafka"]
    assert found["zones changed"] == found["copies changed"] == []
    assert [len(found["zones"]), len(found["copies"])] == [2, 2], found
    assert "Asia/Tokyo" in found["zones"][0]


@pytest.mark.nightly  # half a minute; with a session of its own it is of every run
def test_a_program_without_spark_has_none_left_when_its_processors_have_ended(tmp_path: Path) -> None:
    """The pipeline has the zone of the machine, as it would in plain Spark."""
    found = _runs(tmp_path, "none", {"spark.master": "local[2]"})
    assert found["zones changed"] == found["copies changed"] == []
    assert [len(found["zones"]), len(found["copies"])] == [2, 2], found
    assert "CET" in found["zones"][0]


def test_processors_of_two_jobs_that_begin_at_once_share_a_context_and_leave_the_environment(
    tmp_path: Path,
) -> None:
    """They have one name. The second one waits for the context of the first, and takes it not for the program's."""
    assert _runs(tmp_path, "none", {}, TWO) == {"changed": {}}
