"""Jobs whose application has a process, and maybe an environment, of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.testing.job import JobUnderTest
from grete.testing.waiting import patient

CONFIG = {
    "job.split.deployment.enabled": "true",
    "task.class": "counting:Counter",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
}
COUNTER = """
import grete

class Counter(grete.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")
        self.context = context

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", self.answer(count), key=envelope.key)

    def answer(self, count):
        return count
"""
ORJSON = """
import json
__version__ = "0.1"
loads = json.loads

def dumps(value):
    return json.dumps(value).encode()
"""
Start = Callable[..., JobUnderTest]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a job whose application is the text."""
    started: list[JobUnderTest] = []

    def start(text: str = COUNTER, *, without: str = "", **config: str) -> JobUnderTest:
        folder = tmp_path / "application"
        folder.mkdir(exist_ok=True)
        (folder / "counting.py").write_text(text)
        more = {name.replace("__", "."): value for name, value in config.items()}
        whole = {**CONFIG, "job.application.path": str(folder), **more}
        whole.pop(without, None)
        job = JobUnderTest(config=whole)
        started.append(job)
        return job.start()

    yield start
    for job in started:
        job.close()


def answer(body: str, *, imports: str = "") -> str:
    """The application with another answer."""
    return f"{imports}\n{COUNTER}".replace("        return count\n", f"        {body}\n")


def sent(job: JobUnderTest, *keys: str) -> list[Any]:
    """Process a message of each key; the messages sent for it."""
    for key in keys:
        job.send("local.in", 1, key=key)
    job.run()
    return job.messages("local.out")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with other versions of the framework's packages, which would break it."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    for name in ("apsw", "pyarrow", "msgspec", "confluent_kafka"):
        (packages / f"{name}.py").write_text('__version__ = "0.1"\n')
    (packages / "orjson.py").write_text(ORJSON)
    return folder


def run_to_its_end(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Lines that the container of a job has logged which reads one message; its application is in the folder."""
    config = {**CONFIG, "job.name": "told", "job.application.path": "application"}
    (folder / "job.properties").write_text("\n".join(f"{key}={value}" for key, value in config.items()))
    with closing(LocalSystem(folder / "home" / "local", SystemClock())) as system:
        system.create_stream(StreamSpec("in", 1))
        system.append("in", [Message(b"k", b"1", 1)])
    done = subprocess.run(
        [sys.executable, "-m", "grete.testing.sparkless", "--until-drained", "--config", "job.properties"],
        cwd=folder,
        env={**environment, "GRETE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    assert done.returncode == 0, done.stderr
    [log] = folder.glob("home/**/container-0.log")
    return log.read_text().splitlines()
