"""The chaos tool against its own job, with Spark: whatever it kills, nothing is lost and nothing done twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grete.testing.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(300)]


def test_nothing_is_lost_or_done_twice_with_spark_either(tmp_path: Path) -> None:
    log = tmp_path / "kills.log"
    options = ["--own-job", "--rounds", "8", "--seed", "1", "--kill-time", "8", "--log-file", str(log)]
    done = subprocess.run(
        [sys.executable, "-m", "grete.testing.chaos", *options],
        capture_output=True,
        text=True,
        timeout=patient(900),
    )
    assert done.returncode == 0, done.stderr
    assert log.read_text().count("killing") >= 8
