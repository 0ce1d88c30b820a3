"""The tour of stream processors, run as it stands there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grete.testing.waiting import patient

TOUR = Path(__file__).parents[2] / "examples" / "processors" / "tour.py"


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_tour_of_processors_shows_what_it_says(tmp_path: Path) -> None:
    """With Spark in both programs, of which one is killed."""
    done = subprocess.run(
        [sys.executable, str(TOUR)],
        cwd=tmp_path,
        env={**os.environ, "GRETE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=patient(240),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this program processes" in done.stdout
    assert "state: RUNNING" in done.stdout
    assert '"key":"castle","value":"2"' in done.stdout, "the other program's count goes on here"
    assert "this program has left the job" in done.stdout
    assert "ended in time: True" in done.stdout
    assert "stopped" in done.stdout
