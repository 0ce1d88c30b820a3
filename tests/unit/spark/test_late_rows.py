"""What Spark drops as late is in the log: it is lost, and Spark says so in a figure alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from grete.spark.pipeline.late_rows import LateRows


def report(batch: int, *dropped: int) -> dict[str, Any]:
    return {
        "batchId": batch,
        "eventTime": {"watermark": "2026-11-22T12:00:00.000Z"},
        "stateOperators": [{"numRowsDroppedByWatermark": one} for one in dropped],
    }


def test_the_first_are_said_at_once_and_more_every_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "grete.container")
    now = [1_000.0]
    late = LateRows(lambda: now[0])
    late.note({"batchId": 1})  # a plan without state
    late.note(report(2, 0, 0))
    assert not caplog.messages
    for batch, after_s in ((3, 0.0), (4, 60.0), (5, 500.0), (6, 100.0), (7, 900.0)):
        now[0] += after_s
        late.note(report(batch, 2, 1) if batch != 7 else report(batch, 0))
    late.say()
    late.note(report(8, 4))
    late.say()
    late.say()
    said = [
        message.partition(" rows as late, older than the watermark (2026-11-22")[0]
        for message in caplog.messages
    ]
    assert said == [
        "batch 3: Spark has dropped 3",
        "batch 6: Spark has dropped 9",
        "batch 8: Spark has dropped 4",
    ]
