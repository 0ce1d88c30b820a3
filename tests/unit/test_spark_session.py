"""The settings with which Spark starts."""

from __future__ import annotations

import logging

import pytest

from grete.spark.session import context_settings


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
