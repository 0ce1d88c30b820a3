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
