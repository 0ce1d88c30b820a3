"""Fixtures of tests without servers and Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_output import check_outputs
from tests.unit.finished_job import finish_job

from grete.systems.local.system import LocalSystem


@pytest.fixture(scope="session", autouse=True)
def documented_outputs() -> None:
    """What commands print for programs is what docs/json-output.md says."""
    check_outputs()


@pytest.fixture
def job(home: Path, system: LocalSystem) -> Path:
    """A job of two tasks in one container that has finished; one record of seven is not processed yet."""
    finish_job(system)
    return home
