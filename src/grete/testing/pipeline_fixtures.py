"""Fixtures for tests of DataFrame pipelines: `from grete.testing.pipeline_fixtures import start_pipeline` in a
conftest.py. Tests of StreamTasks, which do without Spark, take those of `grete.testing.pytest_fixtures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grete.testing.pipeline import PipelineUnderTest
from grete.testing.pytest_fixtures import started

StartPipeline = Callable[..., PipelineUnderTest]
"""Takes what PipelineUnderTest takes, and starts it."""


@pytest.fixture
def start_pipeline(tmp_path: Path) -> Iterator[StartPipeline]:
    """Start pipelines in the test's own folder; they are closed when the test ends."""
    yield from started(PipelineUnderTest, "pipeline", tmp_path)
