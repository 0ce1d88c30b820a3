"""The contract of launchers on every back end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.launch.base import Launcher
from grete.launch.process import ProcessLauncher
from grete.launch.thread import ThreadLauncher
from grete.testing.conformance.launch import KillingLauncherConformance, LauncherConformance, behave


class TestProcessLauncher(KillingLauncherConformance):
    @pytest.fixture
    def launcher(self, tmp_path: Path) -> Iterator[Launcher]:
        command = [sys.executable, "-m", "grete.testing.conformance.launch"]
        launcher = ProcessLauncher(command, tmp_path / "logs")
        yield launcher
        launcher.close()

    @pytest.fixture
    def another(self, launcher: Launcher, tmp_path: Path) -> Iterator[Launcher]:
        another = ProcessLauncher(
            [sys.executable, "-c", "raise SystemExit('not adopted')"], tmp_path / "logs"
        )
        yield another
        another.close()


class TestThreadLauncher(LauncherConformance):
    CAN_ADOPT = False

    @pytest.fixture
    def launcher(self) -> Iterator[Launcher]:
        launcher = ThreadLauncher(behave)
        yield launcher
        launcher.close()
