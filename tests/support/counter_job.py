"""A job that counts the keys of a stream, and one that does so in Spark's state: run by the real command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from grete.clock import SystemClock
from grete.errors import StreamNotFound
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import patient, reaches

COUNTER = '''
import logging

import grete

class Counter(grete.StreamTask):
    """Counts each key; every output says which count it is, so loss and duplication show."""

    def init(self, context):
        self.counts = context.store("counts")
        logging.getLogger("counter").info("counting in %s", context.task_name)

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", {"count": count}, key=envelope.key)
'''
COUNTER_PROPERTIES = """
job.name=counter
job.application.path=.
task.class=counter:Counter
task.inputs=local.in
task.outputs=local.out
task.max.records.per.batch=1000
cluster-manager.container.retry.longest-pause.ms=100
systems.local.samza.offset.default=oldest
systems.local.samza.key.serde=string
systems.local.samza.msg.serde=json
stores.counts.factory=grete.store.sqlite
spark.master=local[2]
spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
KEYS = 50


COUNTING_PIPELINE = '''
import pathlib

import grete

class Counting(grete.DataFramePipeline):
    """Counts each key in Spark's state; every batch sends the counts that changed."""

    output = "local.out"
    output_mode = "update"

    def build(self, inputs):
        assert pathlib.Path("counter.py").is_file(), "containers work in the application's folder"
        [frame] = inputs.values()
        assert frame.sparkSession.read.text("counter.py").columns == ["value"], "and so does Spark"
        return frame.groupBy(frame["key"].cast("string").alias("key")).count()
'''


@dataclass
class CounterJob:
    """A job that counts the keys of `local.in`, run by the real command line in a home of its own."""

    home: Path
    config: Path

    def configure(self, settings: Mapping[str, str]) -> None:
        """Add settings to the configuration."""
        with self.config.open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())

    def fill(self, records: int) -> None:
        """Append records; the keys take turns."""
        with closing(LocalSystem(self.home / "local", SystemClock())) as local:
            local.ensure_stream(StreamSpec("in", 2))
            local.append("in", (Message(b"key%d" % (i % KEYS), b"{}", 1_000 + i) for i in range(records)))

    def run(
        self, *arguments: str, spark: bool = True, within_s: float = 900, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """`grete run --until-drained` in the foreground; not `spark` where that is not the subject, in 2 s."""
        drained = "--until-drained"
        command = self.command("run", drained, "--quiet") if spark else self.without_spark(drained)
        return subprocess.run(
            [*command, *arguments],
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=patient(within_s),
        )

    def run_through(self, kills: Sequence[tuple[str, int]], died: Path, *, spark: bool = True) -> None:
        """Run to the end while the container dies at the nth pass of each point, each of them once.

        `died` is where those that were reached leave their mark; one that was not fails the test.
        """
        died.mkdir()
        settings = {
            "GRETE_FAILPOINT": ",".join(f"{point}:kill:{nth}" for point, nth in kills),
            "GRETE_FAILPOINT_ONCE": str(died),
            "GRETE_FAILPOINT_CONTAINER": "0",
        }
        result = self.run(spark=spark, within_s=300 + 60 * len(kills), **settings)  # 12 s each on two cores
        assert result.returncode == 0, result.stderr + self.log()
        reached = {path.name for path in died.iterdir()}
        missed = [kill for place, kill in enumerate(kills) if f"{place}-{kill[0]}" not in reached]
        assert not missed, f"never reached, so this shows nothing about them: {missed}"

    def command(self, *words: str) -> list[str]:
        """A grete command that names this job's configuration."""
        return [sys.executable, "-m", "grete.cli.main", *words, "--config", str(self.config)]

    def grete(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A grete command that names this job's configuration, run to its end."""
        return subprocess.run(
            self.command(*words),
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=patient(60),
        )

    def of_home(self, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """A grete command that names jobs itself, run to its end with this exit code, Spark included."""
        done = subprocess.run(
            [*self.command()[:3], *words],
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=patient(200),
        )
        assert done.returncode == code, done.stdout + done.stderr + self.report()
        return done

    def without_spark(self, *words: str) -> list[str]:
        """The command that runs this job without Spark."""
        return [sys.executable, "-m", "grete.testing.sparkless", *words, "--config", str(self.config)]

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a grete process in this home."""
        return {**os.environ, "GRETE_HOME": str(self.home), **more}

    def log(self) -> str:
        """The container's log."""
        [log] = self.home.glob("jobs/*/logs/container-0.log")
        return log.read_text()

    def report(self) -> str:
        """For a test that fails: what the job says of itself, and the end of each container's log."""
        report = []
        for words in (["status"], ["history"], ["container", "list"]):
            command = [*self.command(*words)[:-2], "--job", "counter", "-o", "json"]
            done = subprocess.run(
                command, env=self.environment(), capture_output=True, text=True, timeout=patient(60)
            )
            report.append(f"--- {' '.join(words)}\n{done.stdout}{done.stderr}")
        for log in sorted(self.home.glob("jobs/counter-1/logs/*.log")):
            last = log.read_text(errors="replace").splitlines()[-60:]
            report.append("\n".join([f"--- the end of {log.name}", *last]))
        return "\n".join(report)

    def counted(self) -> int:
        """How many counts were sent; 0 as well when the streams do not exist yet."""
        try:
            return sum(map(len, self.counts().values()))
        except StreamNotFound:
            return 0

    def wait_until_counted(self, records: int) -> None:
        """As long as it takes, if only the number grows."""
        reaches(self.counted, records, "the number of counts", still_s=90, context=self.report)

    def counts(self) -> dict[str, list[int]]:
        """Every count that was sent, by key, in stream order."""
        found: dict[str, list[int]] = {}
        with closing(LocalSystem(self.home / "local", SystemClock())) as local:
            for partition in range(local.partition_count("out")):
                for _, batch in local.read("out", partition, 0):
                    for key, value in zip(
                        batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True
                    ):
                        found.setdefault(key.decode(), []).append(json.loads(value)["count"])
        return found

    def assert_exactly_once(self, records: int) -> None:
        """Every record was counted once, in order."""
        expected = {f"key{key}": list(range(1, len(range(key, records, KEYS)) + 1)) for key in range(KEYS)}
        assert self.counts() == expected


def make_job(directory: Path, application_text: str, properties: str) -> CounterJob:
    """A home in `directory`, and the application and its configuration beside it."""
    application = directory / "application"
    application.mkdir(parents=True)
    (application / "counter.py").write_text(application_text)
    config = application / "counter.properties"
    config.write_text(properties)
    return CounterJob(directory / "home", config)
