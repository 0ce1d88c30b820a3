"""A canary: the password of a job's Kafka system occurs nowhere but in the process that logs in with it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from tests.support.secure_kafka import SecureCluster

from grete.cli.main import main
from grete.clock import SystemClock
from grete.metadata.launches import read_launches
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message
from grete.testing.waiting import eventually, patient

pytestmark = pytest.mark.fault
CANARY = "wonderland-4f1c"
"""The beginning of ann's password."""
PATHS = (
    "",
    "api/v1/job",
    "api/v1/job-model",
    "api/v1/config",
    "api/v1/history",
    "api/v1/checkpoints",
    "api/v1/lag",
)
TASK = """
import grete

class Echo(grete.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send("local.out", envelope.message, key=envelope.key)
"""


def configuration(secure: SecureCluster, application: Path, password: Path, name: str) -> str:
    return f"""
job.name={name}
job.application.path={application}
job.coordinator.system=kafka
job.coordinator.replication.factor=1
task.class=echo:Echo
task.inputs=local.in
task.outputs=local.out
systems.local.samza.offset.default=oldest
systems.kafka.samza.factory=kafka
systems.kafka.producer.bootstrap.servers={secure.secure_bootstrap}
systems.kafka.producer.security.protocol=SASL_SSL
systems.kafka.producer.sasl.mechanism=PLAIN
systems.kafka.producer.sasl.jaas.config=PlainLoginModule required username="ann" password="${{file:{password}}}";
systems.kafka.producer.ssl.truststore.type=PEM
systems.kafka.producer.ssl.truststore.location={secure.login.authority.ca_pem}
"""


def test_a_password_behind_a_reference_occurs_nowhere(
    secure_kafka: SecureCluster,
    home: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    password = tmp_path_factory.mktemp("secrets") / "password"
    password.write_text(secure_kafka.login.users["ann"])
    assert CANARY in password.read_text()
    job = JobId(f"canary-{home.name}"[-40:])
    (home / "echo.py").write_text(TASK)
    config = home / "canary.properties"
    config.write_text(configuration(secure_kafka, home, password, job.name))
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        local.create_stream(StreamSpec("in", 1))
        local.append("in", [Message(b"k", b"v", 1)])
    coordinator = subprocess.Popen(
        [sys.executable, "-m", "grete.testing.sparkless", "--config", str(config)],
        env={**os.environ, "GRETE_LOG_LEVEL": "DEBUG"},
        stderr=(home / "coordinator.log").open("wb"),
    )
    try:
        said = [*_while_it_runs(job, home), *_in_the_command_line(job, capsys)]
    finally:
        coordinator.terminate()
        assert coordinator.wait(patient(60)) == 0, (home / "coordinator.log").read_text()[-3000:]
    assert all(said), "an empty answer shows nothing"
    said += [path.read_text(errors="replace") for path in home.rglob("*") if path.is_file()]
    assert any(f"${{file:{password}}}" in text for text in said), (
        "where the reference is shown, the secret might be"
    )
    assert not [text for text in said if CANARY in text]


def _while_it_runs(job: JobId, home: Path) -> list[str]:
    """Answers over HTTP, and what the container's process shows of itself."""

    def has_worked() -> bool:
        with closing(LocalSystem(home / "local", SystemClock())) as local:
            return "out" in local.streams() and local.offsets("out")[0].newest is not None

    eventually(has_worked)
    with open_job(job) as handle:
        state = handle.state()
        assert state is not None
        [launch] = read_launches(handle.stream).values()
        records = [repr(record) for record in handle.coordinator_log.read()]
    token = Path(state.token_file).read_text().strip()
    answers = [
        httpx2.get(
            f"{state.url.rstrip('/')}/{path}", headers={"Authorization": f"Bearer {token}"}, trust_env=False
        )
        for path in (*PATHS, "metrics")
    ]
    assert {answer.status_code for answer in answers} == {200}
    process = Path("/proc") / launch.handle.split("/")[1]
    shown = [(process / name).read_text(errors="replace") for name in ("cmdline", "environ")]
    return [*(answer.text for answer in answers), *records, *shown]


def _in_the_command_line(job: JobId, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Output of the tools, for people and for programs."""
    said = []
    for words in (["status"], ["history"], ["config", "get"], ["stream", "dump"], ["job-model"]):
        assert main([*words, "--job", job.name, "-o", "json"]) == 0, words
        printed = capsys.readouterr()
        said += [printed.out, printed.err or "-"]
    return said
