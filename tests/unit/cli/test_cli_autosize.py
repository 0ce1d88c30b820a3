"""`grete autosize plan` over what a job's coordinator has recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.finished_job import opened

from grete.cli.main import main
from grete.config.settings.job import JobSettings
from grete.coordinator.figure_file import FigureFile, Figures

Output = pytest.CaptureFixture[str]


def record(*figures: Figures) -> None:
    with opened() as handle:
        file = FigureFile(handle.state_directory)
    for one in figures:
        file.append(one)


@pytest.mark.usefixtures("job")
def test_it_says_what_the_rule_would_have_done_and_why(capsys: Output) -> None:
    record(*(Figures(1_796_000_000.0 + 10 * i, 600_000, 1_000.0, 0.2, 1, 300_000) for i in range(10)))
    assert main(["autosize", "plan", "--job", "orders", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["figures"] == 10
    assert shown["sizes"] == []
    assert "50% of it is in one partition" in shown["standing"]
    record(*(Figures(1_796_001_000.0 + 10 * i, 600_000, 1_000.0, 0.2, 1, 200_000) for i in range(10)))
    assert main(["autosize", "plan", "--job", "orders"]) == 0
    text = capsys.readouterr().out
    assert "1 changes. In the end: goes to 2: 600000 records behind, 600 s" in text


def test_of_a_pipeline_it_says_which_batches_it_would_have_made_shorter(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobSettings, "is_pipeline", True)
    long = (Figures(1_796_000_000.0 + 10 * i, 600_000, 1_000.0, 200.0, 1, 0, 0.0, 200_000) for i in range(2))
    record(*long)
    assert main(["autosize", "plan", "--job", "orders", "-o", "json"]) == 0
    [first, *_] = json.loads(capsys.readouterr().out)["batches"]
    assert (first["records"], first["wanted"]) == (200_000, 15_000)
    assert main(["autosize", "plan", "--job", "orders"]) == 0
    text = capsys.readouterr().out
    assert "records a batch" in text
    assert "a full batch took 200 s, 1000 records/s; the lag target is 60 s" in text


@pytest.mark.usefixtures("job")
def test_of_a_job_that_was_never_recorded_it_says_who_records(capsys: Output) -> None:
    assert main(["autosize", "plan", "--job", "orders"]) == 0
    assert "The coordinator of a running job writes down" in capsys.readouterr().out


def test_a_recorded_line_of_an_earlier_version_says_too_little(job: Path, capsys: Output) -> None:
    record(*(Figures(1_796_000_000.0 + 10 * i, 600_000, 1_000.0, 0.2) for i in range(10)))
    assert main(["autosize", "plan", "--job", "orders"]) == 0
    assert "0 changes. In the end: it is not known how far the job is behind" in capsys.readouterr().out
