"""Fixtures that several kinds of test share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.systems.local import LocalSystem

os.environ.pop("GRETE_FAILPOINT", None)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GRETE_HOME of its own."""
    monkeypatch.setenv("GRETE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def system(tmp_path: Path) -> Iterator[LocalSystem]:
    """An empty embedded system in `tmp_path/local`."""
    local = LocalSystem(tmp_path / "local", SystemClock())
    yield local
    local.close()
