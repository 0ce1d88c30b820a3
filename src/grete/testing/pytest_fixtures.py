"""Fixtures for applications' tests: `from grete.testing.pytest_fixtures import start_job` in a conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from grete.testing.applications import Application
from grete.testing.job import JobUnderTest

StartJob = Callable[..., JobUnderTest]
"""Takes what JobUnderTest takes, and starts it."""


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[StartJob]:
    """Start jobs in the test's own folder; they are closed when the test ends."""
    with ExitStack() as stack:
        count = 0

        def start(
            application: Application | None = None, config: Mapping[str, str] | None = None, **more: Any
        ) -> JobUnderTest:
            nonlocal count
            count += 1
            more.setdefault("directory", tmp_path / f"job-{count}")
            return stack.enter_context(JobUnderTest(application, config, **more))

        yield start
