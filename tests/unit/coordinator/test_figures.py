"""The last hour of a job: written while it runs, whole after a crash, bounded, and no reason for a job to end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from grete.coordinator.figure_file import FigureFile, Figures, read_figures
from grete.coordinator.figure_recorder import FigureRecorder
from grete.coordinator.progress import ReportedProgress
from grete.coordinator.view import View
from grete.testing.clock import ManualClock
from grete.wire.container_protocol import Heartbeat


def figures(at_s: float, behind: int | None = 5) -> Figures:
    return Figures(at_s, behind, 12.5, None)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    file = FigureFile(tmp_path / "orders")
    file.append(figures(1.0))
    file.append(Figures(1_796_000_011.25, None, None, 0.003))
    assert read_figures(tmp_path / "orders") == [figures(1.0), Figures(1_796_000_011.25, None, None, 0.003)]
    assert (tmp_path / "orders" / "figures.tsv").stat().st_mode & 0o077 == 0


def test_a_successor_writes_on(tmp_path: Path) -> None:
    FigureFile(tmp_path).append(figures(1.0))
    FigureFile(tmp_path).append(figures(2.0))
    assert read_figures(tmp_path) == [figures(1.0), figures(2.0)]


@pytest.mark.parametrize("torn", [b"3.0\t7", b"3.0", b"\xff\xfe\x00", b"3.0\t7\t1\t"])
def test_a_line_that_a_crash_has_cut_off_costs_that_line(tmp_path: Path, torn: bytes) -> None:
    FigureFile(tmp_path).append(figures(1.0))
    with (tmp_path / "figures.tsv").open("ab") as file:
        file.write(torn)
    FigureFile(tmp_path).append(figures(4.0))
    assert read_figures(tmp_path) == [figures(1.0), figures(4.0)]


@pytest.mark.parametrize(
    "line",
    ["", "x\t1\t2\t3", "\t1\t2\t3", "1\t2\t3", "1\t2\t3\t4\t5\t6\t7\t8\t9", "1\tinf\t2\t3", "1\tnan\t2\t3"],
)
def test_a_line_that_says_nothing_is_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "figures.tsv").write_text(f"1\t5\t12.5\t\n{line}\n2\t5\t12.5\t\n")
    assert read_figures(tmp_path) == [figures(1.0), figures(2.0)]


def test_an_hour_is_kept(tmp_path: Path) -> None:
    file = FigureFile(tmp_path)
    for second in range(2_000):
        file.append(figures(float(second)))
        assert (tmp_path / "figures.tsv").stat().st_size < 30_000
    assert read_figures(tmp_path) == [figures(float(second)) for second in range(1_640, 2_000)]


def test_of_no_job_there_are_none(tmp_path: Path) -> None:
    assert read_figures(tmp_path / "nowhere") == []


class Recorded:
    """A recorder over a view that has heartbeats and a lag alone."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.progress = ReportedProgress(self.clock)
        self.monitors = SimpleNamespace(lag=SimpleNamespace(total=7, by_ssp={"in.0": 5, "in.1": 2}))
        view = SimpleNamespace(
            monitors=self.monitors,
            containers=SimpleNamespace(progress=self.progress.by_container, is_ready=lambda: False),
        )
        self.recorder = FigureRecorder(cast("View", view), folder, self.clock)

    def beat(
        self, records: int, commits: int = 0, commit_s: float = 0.0, epoch: int = 1, cpu_s: float = 0.0
    ) -> None:
        commit = {"commits": commits, "commit_seconds": commit_s}
        said = Heartbeat(epoch, "running", records=records, cpu_seconds=cpu_s, **commit)
        self.progress.record("0", said)

    def record(self) -> None:
        self.clock.advance(10.0)
        self.recorder.record()


def test_rates_are_of_the_time_between_two_lines(tmp_path: Path) -> None:
    job = Recorded(tmp_path)
    job.beat(1_000_000, cpu_s=70)  # a coordinator that has taken over has not processed them in ten seconds
    job.record()
    job.beat(1_000_500, commits=10, commit_s=0.5, cpu_s=85)
    job.record()
    job.beat(1_000_500, commits=10, commit_s=0.5, cpu_s=85)
    job.record()
    job.beat(0, epoch=2)  # started again
    job.beat(300, commits=1, commit_s=0.1, epoch=2)
    job.record()
    rows = read_figures(tmp_path)
    assert [row.behind for row in rows] == [7] * 4
    assert [row.records_per_s for row in rows] == [None, 50.0, 0.0, 30.0]
    assert [row.commit_s for row in rows] == [None, 0.05, None, None]
    assert [row.cpu for row in rows] == [None, 1.5, 0.0, 0.0], "processors in use"
    assert [(row.containers, row.worst) for row in rows] == [(1, 5)] * 4


def test_a_container_that_is_heard_of_late_has_not_processed_all_of_its_records_just_now(
    tmp_path: Path,
) -> None:
    job = Recorded(tmp_path)
    job.record()
    job.beat(1_000_000)
    job.record()
    assert [row.records_per_s for row in read_figures(tmp_path)] == [None, 0.0]


def test_who_cannot_write_says_so_once_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "figures.tsv").mkdir()
    job = Recorded(tmp_path)
    for _ in range(3):
        job.record()
    assert caplog.text.count("figures over time are not written") == 1
    (tmp_path / "figures.tsv").rmdir()
    job.record()
    assert len(read_figures(tmp_path)) == 1
