"""The settings with which Spark starts."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from grete.spark.session import class_archive, context_settings, session_settings


def test_speculation_is_off_for_stream_tasks_whatever_is_configured(caplog: pytest.LogCaptureFixture) -> None:
    assert context_settings("job", {})["spark.speculation"] == "false", "a cluster's defaults may have it"
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        found = context_settings("job", {"spark.speculation": "true", "spark.speculation.quantile": "0.5"})
    assert found["spark.speculation"] == "false"
    assert "spark.speculation=true is ignored" in caplog.text


def test_dynamic_allocation_is_off_for_stream_tasks_with_a_way_out(caplog: pytest.LogCaptureFixture) -> None:
    """It would begin with two shares, whatever the cluster has."""
    with caplog.at_level(logging.WARNING):
        found = context_settings("job", {"spark.dynamicAllocation.enabled": "true"})
    assert found["spark.dynamicAllocation.enabled"] == "false"
    assert "spark.dynamicAllocation.enabled=true is ignored" in caplog.text
    assert "spark.executor.instances" in caplog.text


def test_the_jvm_of_a_pipeline_starts_from_the_archive_of_its_classes_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of StreamTasks has another collector, and one of the user's own has the options that the user gave it."""

    def options(**config: str) -> str:
        given = {key.replace("_", "."): value for key, value in config.items()}
        return session_settings("job", given)["spark.driver.extraJavaOptions"]

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert "SharedArchiveFile" not in options()
    class_archive().touch()
    archived = f"-XX:SharedArchiveFile={class_archive()}"
    assert archived in options()
    assert archived not in options(spark_driver_extraJavaOptions="-XX:+UseSerialGC")
    assert archived not in context_settings("job", {})["spark.driver.extraJavaOptions"]
