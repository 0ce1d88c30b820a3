"""The JVM of a pipeline's session starts while its container begins. The script of Spark here only notes its call."""

import os
import subprocess
import sys
from pathlib import Path

_CONTAINER = """
import sys, time
from pathlib import Path

from grete.config.settings import Settings
from grete.container.assignment import Assignment
from grete.errors import GreteError
from grete.model.ids import ContainerId, JobId
from grete.spark.session.container_session import app_name, build_session, session_ahead

called, application = Path(sys.argv[1]), sys.argv[2]
config = {application: "jobs:It", "task.inputs": "local.in"}
assignment = Assignment(JobId("orders"), ContainerId("0"), 1, Settings.of(config), (), until_drained=True)
with session_ahead(assignment):
    deadline_s = time.monotonic() + (20 if application == "app.class" else 0.5)
    while not called.exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    print("while it begins", called.exists())
print("and then", called.read_text().split() if called.exists() else "nothing")
try:
    build_session(app_name(assignment), assignment.settings)
except GreteError as error:
    print("at last", error)
"""
_SUBMIT = """#!/bin/sh
case "$*" in *spark.app.name=grete*orders*container*0*) echo begun >> "$CALLED";; esac
sleep 0.3
echo ended >> "$CALLED"
exit 1
"""


def _run(folder: Path, application: str) -> str:
    submit, called = folder / "bin/spark-submit", folder / "called"
    submit.parent.mkdir()
    submit.write_text(_SUBMIT)
    submit.chmod(0o700)
    environment = os.environ | {"SPARK_HOME": str(folder), "CALLED": str(called)}
    words = [sys.executable, "-c", _CONTAINER, str(called), application]
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_the_jvm_of_a_pipeline_starts_while_its_container_begins_and_is_waited_for(tmp_path: Path) -> None:
    said = _run(tmp_path, "app.class")
    assert "while it begins True" in said
    assert "and then ['begun', 'ended']" in said
    assert "at last Spark did not start" in said


def test_tasks_have_no_session_to_start(tmp_path: Path) -> None:
    assert "and then nothing" in _run(tmp_path, "task.class")
