"""Attempts of a deployment: the first submits, later ones go on with what the stream holds. Without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from grete import failpoints
from grete.assembly import RunOptions, run_job
from grete.assembly.submission import WITHOUT_SPARK
from grete.embedded.leading import LeaderRequests
from grete.errors import LogError
from grete.model.ids import JobId
from grete.operations import open_job
from grete.operations.configuration import set_config

pytestmark = pytest.mark.fault
JOB = JobId("counter")


@pytest.fixture
def job(counter_job: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GRETE_HOME", str(counter_job.home))
    counter_job.fill(100)
    return counter_job


def attempt(job: Any, deployment: str, place: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("SAMZA_EPOCH_ID", deployment)
    options = RunOptions(
        config_paths=[str(job.config)],
        until_drained=True,
        place={"spark.driver.host": place},
        container_command=WITHOUT_SPARK,
    )
    return run_job(options, signals=LeaderRequests())


def starts() -> list[tuple[str, str]]:
    with open_job(JOB) as handle:
        rows = handle.history()
    return [(row.event, row.details["epoch_id"]) for row in rows if row.event in ("deployment", "attempt")]


def test_a_further_attempt_keeps_what_was_changed_since_the_submit_and_has_a_place_of_its_own(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = failpoints._parse("coordinator.metadata-written:raise")
    with monkeypatch.context() as failing:
        failing.setattr(failpoints, "_armed", died)
        with pytest.raises(LogError):
            attempt(job, "first", "node-1", monkeypatch)
    with open_job(JOB) as handle:
        set_config(handle, {"shop.name": "changed"}, reason="by an operator")
    assert attempt(job, "first", "node-2", monkeypatch) == 0
    with open_job(JOB) as handle:
        config = handle.config()
    assert (config["shop.name"], config["spark.driver.host"]) == ("changed", "node-2")
    assert starts() == [("deployment", "first"), ("attempt", "first")]

    assert attempt(job, "second", "node-3", monkeypatch) == 0
    with open_job(JOB) as handle:
        config = handle.config()
    assert "shop.name" not in config, "a new deployment submits"
    assert starts()[2:] == [("deployment", "second")]
    job.assert_exactly_once(100)


def test_a_job_that_has_ended_is_not_begun_again_by_its_own_deployment(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attempt(job, "first", "node-1", monkeypatch) == 0
    assert attempt(job, "first", "node-1", monkeypatch) == 0
    assert starts() == [("deployment", "first")]
