"""Fixtures for tests of DataFrame pipelines: `from grete.testing.pipeline_fixtures import start_pipeline` in a
conftest.py. Tests of StreamTasks, which do without Spark, take those of `grete.testing.pytest_fixtures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from grete.testing.applications import Pipeline
from grete.testing.pipeline import PipelineUnderTest

StartPipeline = Callable[..., PipelineUnderTest]
"""Takes what PipelineUnderTest takes, and starts it."""


@pytest.fixture
def start_pipeline(tmp_path: Path) -> Iterator[StartPipeline]:
    """Start pipelines in the test's own folder; they are closed when the test ends."""
    with ExitStack() as stack:
        count = 0

        def start(
            application: Pipeline | str | None = None, config: Mapping[str, str] | None = None, **more: Any
        ) -> PipelineUnderTest:
            nonlocal count
            count += 1
            more.setdefault("directory", tmp_path / f"pipeline-{count}")
            return stack.enter_context(PipelineUnderTest(application, config, **more))

        yield start
