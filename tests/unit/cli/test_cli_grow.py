"""`grete stream grow`: partitions are added, unless a job that reads the stream would lose its state's keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.config.settings import Settings
from grete.coordinator.assignment_records import assignment_records
from grete.coordinator.job_model import Remembered, calculate
from grete.metadata.assignments import TaskAssignments
from grete.metadata.job_index import claim_stream
from grete.model.ids import JobId, SystemStream
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem

Output = pytest.CaptureFixture[str]
STATEFUL = {"task.class": "orders:Orders", "stores.totals.factory": "grete.store.sqlite"}


@pytest.fixture(autouse=True)
def stream(home: Path, system: LocalSystem) -> None:
    system.create_stream(StreamSpec("in", 4))


def submitted(name: str, partitions: int = 4, **config: str) -> None:
    """A job whose last model was calculated from so many partitions."""
    job = JobId(name)
    everything = {"job.name": name, "task.inputs": "local.in", **config}
    with open_job(job, must_exist=False) as handle:
        claim_stream(handle.coordinator_log._file, job)  # type: ignore[attr-defined] # as `grete run` does
        handle.stream.write_config(everything, run_id="r", reason="")
        model = calculate(
            Settings.of(everything), {SystemStream("local", "in"): partitions}, Remembered()
        ).model
        TaskAssignments(handle.stream).write(assignment_records(model, Remembered()))


def test_a_stream_without_readers_grows_to_any_count(system: LocalSystem, capsys: Output) -> None:
    assert main(["stream", "grow", "local.in", "--partitions", "6", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"stream": "local.in", "before": 4, "partitions": 6}
    assert system.partition_count("in") == 6


def test_a_pipeline_lets_its_input_grow_to_any_count_since_sparks_state_is_by_key(
    system: LocalSystem, capsys: Output
) -> None:
    submitted("counts", **{"app.class": "counts:Counts"})
    assert main(["stream", "grow", "local.in", "--partitions", "6"]) == 0, capsys.readouterr().err
    assert system.partition_count("in") == 6


def test_a_stateful_job_lets_its_input_grow_to_a_multiple_only(system: LocalSystem, capsys: Output) -> None:
    submitted("orders", **STATEFUL)
    submitted("views", **{"task.class": "views:Views"})
    assert main(["stream", "grow", "local.in", "--partitions", "6"]) == 1
    error = capsys.readouterr().err
    assert "orders: local.in had 4 partitions and has 6" in error
    assert "views" not in error
    assert "--force" in error
    assert system.partition_count("in") == 4
    assert main(["stream", "grow", "local.in", "--partitions", "8"]) == 0
    assert "local.in: 4 to 8 partitions" in capsys.readouterr().out
    assert system.partition_count("in") == 8


def test_the_multiple_is_of_what_the_job_has_read_not_of_what_is_there(
    system: LocalSystem, capsys: Output
) -> None:
    submitted("orders", **STATEFUL)
    system.add_partitions("in", 8)
    assert main(["stream", "grow", "local.in", "--partitions", "12"]) == 0
    assert main(["stream", "grow", "local.in", "--partitions", "18"]) == 1
    assert "had 4 partitions and has 18" in capsys.readouterr().err


def test_a_stateful_job_that_does_not_follow_its_keys_is_asked_for(
    system: LocalSystem, capsys: Output
) -> None:
    submitted("orders", **STATEFUL, **{"job.systemstreampartition.input.expansion.enabled": "false"})
    assert main(["stream", "grow", "local.in", "--partitions", "8"]) == 1
    assert "leave their state behind" in capsys.readouterr().err
    assert system.partition_count("in") == 4


def test_shrinking_is_refused_with_the_way_out_even_by_force(system: LocalSystem, capsys: Output) -> None:
    assert main(["stream", "grow", "local.in", "--partitions", "2", "--force"]) == 1
    assert "Create another stream with 2 partitions" in capsys.readouterr().err
    assert system.partition_count("in") == 4
