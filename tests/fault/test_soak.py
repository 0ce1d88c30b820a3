"""Some minutes of `make soak`: jobs of every kind under random faults, each output checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grete.testing.waiting import patient

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(1_800)]
MINUTES = 6


@pytest.mark.usefixtures("kafka")  # the jars
def test_jobs_of_every_kind_go_on_through_whatever_befalls_them(tmp_path: Path) -> None:
    found = tmp_path / "soak.json"
    command = [
        sys.executable,
        "-m",
        "grete_workbench.soak",
        "--hours",
        str(MINUTES / 60),
        "--json",
        str(found),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(1_500), check=False)
    assert done.returncode == 0, done.stderr[-5_000:]
    result = json.loads(found.read_text())
    assert sum(result["faults"].values()) > MINUTES, "one a minute at the least"
    assert all(records > MINUTES * 100 for records in result["records"].values())
