"""A DataFrame pipeline with an environment of its own builds through Spark Connect, and runs as any other does."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.support.client_environment import environment_of_a_client

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.systems.records import rows_of
from grete.testing.waiting import eventually, patient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # Spark starts twice in each

APPLICATION = """
import importlib.util
import json
import os
import sys
import time

import google.protobuf
import grete
import orjson
import pyspark
from pyspark.sql import functions as F

class Versions(grete.DataFramePipeline):
    def build(self, inputs):
        lines = inputs["local.in"]
        here = [pyspark.__version__, google.protobuf.__version__, self.context.config["job.name"]]

        @F.udf("string")
        def seen(value):
            return json.dumps([value, *here, *there()])

        rows = lines.select("key", seen(F.col("value").cast("string")).alias("value"))
        return {"local.out": rows, "local.some": lines.select("key", "value").where("value = 'b'")}

def there():
    has_api_alone = importlib.util.find_spec("grete.spark") is None
    return [orjson.__version__, google.protobuf.__version__, sys.prefix, has_api_alone]

class Expecting(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs):
        return self.context.expect(inputs["local.in"], "value <> 'b'", "dead-letter").select("key", "value")

class Ending(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs):
        print("so long", flush=True)
        os._exit(3)

class Hanging(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs):
        print("so tired", os.getpid(), flush=True)
        time.sleep(1_000)

class Typo(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs):
        return inputs["local.in"].select("key", "valu")
"""
PROPERTIES = """
job.name=versions
job.split.deployment.enabled=true
job.application.environment={environment}
job.application.path=.
app.class=counter:Versions
task.inputs=local.in
task.outputs=local.out,local.some
systems.local.samza.offset.default=oldest
spark.master=local[1]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_of_a_client(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def job(tmp_path: Path, environment: Path, job_maker: Callable[[Path, str, str], Any]) -> Any:
    """A job whose input has two records."""
    made = job_maker(tmp_path, APPLICATION, PROPERTIES.format(environment=environment))
    with closing(LocalSystem(made.home / "local", SystemClock())) as local:
        for name in ("in", "out", "some"):
            local.create_stream(StreamSpec(name, 1))
        send(local, "a", "b")
    return made


@pytest.mark.nightly  # the next test has the client of an environment of its own
def test_a_plan_is_built_by_an_older_client_and_its_functions_run_in_its_environment(
    job: Any, environment: Path
) -> None:
    for added in (("c",), ()):  # the second run goes on where the first ended
        result = job.run()
        assert result.returncode == 0, result.stderr
        with closing(LocalSystem(job.home / "local", SystemClock())) as local:
            send(local, *added)
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        rows, others = [json.loads(value) for value in values(local, "out")], values(local, "some")
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert others == [b"b"]
    protobuf = "5.29.5"
    for row in rows:
        assert row[1:] == ["4.0.1", protobuf, "versions", "3.10.18", protobuf, str(environment), True]
    assert version("orjson") != "3.10.18"
    assert version("protobuf") != protobuf


@pytest.mark.nightly
def test_what_a_build_there_expects_is_set_aside_by_its_container(job: Any) -> None:
    config = ("app.class=counter:Expecting", "task.poison.policy=dead-letter")
    words = [
        word for one in (*config, "task.poison.dead-letter.stream=local.dead") for word in ("--set", one)
    ]
    result = job.run(*words)
    assert result.returncode == 0, result.stderr
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        assert values(local, "out") == [b"a"]
        [letter] = values(local, "dead")
    assert json.loads(letter)["error"] == "expectation \"value <> 'b'\" is not met"


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("Typo", ("build of counter:Typo failed", "UNRESOLVED_COLUMN")),
        pytest.param(
            "Ending",
            ("app.class=counter:Ending (with ", "ended with exit code 3 during 'build'", "so long"),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_what_goes_wrong_in_build_is_named_by_a_dry_run(
    job: Any, pipeline: str, said: tuple[str, ...]
) -> None:
    result = job.run("--set", f"app.class=counter:{pipeline}", "--dry-run")
    assert result.returncode != 0
    assert [one for one in said if one not in result.stderr] == [], result.stderr


@pytest.mark.nightly
def test_a_build_that_hangs_is_ended_by_a_stop_after_its_time(job: Any) -> None:
    words = ["run", "--set", "app.class=counter:Hanging", "--set", "task.shutdown.ms=2000", "--quiet"]
    pid = re.compile(r"so tired (\d+)")
    with subprocess.Popen(job.command(*words), env=job.environment(), stderr=subprocess.PIPE) as running:
        try:
            eventually(
                lambda: list(job.home.glob("jobs/*/logs/container-0.log")) and pid.search(job.log()),
                "it to hang",
                within_s=90,
            )
            assert running.poll() is None
            running.send_signal(signal.SIGTERM)
            assert running.wait(patient(30)) == 0
        finally:
            running.kill()
    found = pid.search(job.log())
    assert found is not None
    eventually(
        lambda: not Path("/proc", found[1]).exists(), "the end of the application's process", within_s=10
    )


def send(local: LocalSystem, *values: str) -> None:
    local.append("in", [Message(b"k", value.encode(), 1, 0) for value in values])


def values(local: LocalSystem, stream: str) -> list[bytes]:
    return [value for first, batch in local.read(stream, 0, 0) for _, _, value, _, _ in rows_of(first, batch)]
