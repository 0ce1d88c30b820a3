"""Events of a run are sent beside it: what goes wrong with them neither holds it up nor goes unsaid."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from grete.spark.pipeline import open_lineage


class Events:
    def __init__(self, answer: Any) -> None:
        self.sent: list[str] = []
        self._answer = answer

    def send(self, kind: str, message: str = "") -> None:
        self.sent.append(f"{kind} {message}".strip())
        self._answer()


def test_a_receiver_that_does_not_answer_holds_up_no_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(open_lineage, "_LAST_EVENT_S", 0.05)
    never = threading.Event()
    events: Any = Events(never.wait)
    open_lineage._Sender(events).close("COMPLETE")
    assert "no COMPLETE of this job's run: no answer" in caplog.text
    never.set()


def test_an_event_that_fails_is_said_and_the_next_one_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise KeyError("kafka.bootstrap.servers")

    events: Any = Events(fails)
    sender = open_lineage._Sender(events)
    sender.send("START")
    sender.close("FAIL", "out of luck")
    assert events.sent == ["START", "FAIL out of luck"]
    assert caplog.text.count("kafka.bootstrap.servers") >= 2
