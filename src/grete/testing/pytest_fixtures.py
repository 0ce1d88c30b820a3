"""Fixtures for applications' tests: `from grete.testing.pytest_fixtures import start_job` in a conftest.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from grete.testing.job import JobUnderTest

StartJob = Callable[..., JobUnderTest]
"""Takes what JobUnderTest takes, and starts it."""


def started(make: Callable[..., Any], name: str, directory: Path) -> Iterator[Callable[..., Any]]:
    """For fixtures: a function that makes and starts, each time in a folder of its own; all are closed behind it."""
    with ExitStack() as stack:
        numbers = itertools.count(1)

        def start(application: Any = None, config: Mapping[str, str] | None = None, **more: Any) -> Any:
            more.setdefault("directory", directory / f"{name}-{next(numbers)}")
            return stack.enter_context(make(application, config, **more))

        yield start


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[StartJob]:
    """Start jobs in the test's own folder; they are closed when the test ends."""
    yield from started(JobUnderTest, "job", tmp_path)
