"""A pipeline whose plan Spark refuses ends at once, and says what Spark says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem

pytestmark = pytest.mark.spark

APPLICATION = """
import grete

class Typo(grete.DataFramePipeline):
    output = "local.out"

    def build(self, inputs):
        return inputs["local.in"].select("key", "valu")
"""
PROPERTIES = """
job.name=typo
app.class=counter:Typo
job.application.path={path}
task.inputs=local.in
"""


def test_an_output_that_nothing_makes_is_named_after_one_attempt(
    tmp_path: Path, job_maker: Callable[[Path, str, str], Any]
) -> None:
    job = job_maker(
        tmp_path, APPLICATION.replace("valu", "value"), PROPERTIES.format(path=tmp_path / "application")
    )
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        local.create_stream(StreamSpec("in", 1))
    result = job.run()
    assert result.returncode == 1
    assert "restarting" not in result.stderr
    for words in (
        "container 0 ended with code 8: ApplicationError output local.out",
        "name it in task.outputs",
    ):
        assert words in result.stderr


def test_a_mistyped_column_ends_the_job_after_one_attempt_with_sparks_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job_maker: Callable[[Path, str, str], Any]
) -> None:
    path = tmp_path / "application"
    job = job_maker(tmp_path, APPLICATION, PROPERTIES.format(path=path))
    with closing(LocalSystem(job.home / "local", SystemClock())) as local:
        local.create_stream(StreamSpec("in", 1))
        local.create_stream(StreamSpec("out", 1))
    result = job.run()
    assert result.returncode == 1
    for words in ("container 0 ended with code 8: AnalysisException", "UNRESOLVED_COLUMN", "Did you mean"):
        assert words in result.stderr
    monkeypatch.setenv("GRETE_HOME", str(job.home))
    with open_job(JobId("typo")) as handle:
        rows = [row for row in handle.history() if row.event == "container-exited"]
    assert [(row.details["exit_code"], row.details["meaning"]) for row in rows] == [("8", "cannot work")]
