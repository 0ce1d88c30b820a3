"""A writer in the background: bounded, counted, and never in the way."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from grete.diagnostics.background_writer import BackgroundWriter
from grete.systems.local.system import Message


def message(number: int) -> Message:
    return Message(None, b"%d" % number, number)


class ListSink:
    """Keeps what it is given; `gate` holds it back, `error` makes it fail."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.writes = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.error: Exception | None = None
        self.closed = False

    def write(self, records: Sequence[Message]) -> None:
        self.entered.set()
        assert self.gate.wait(30)
        self.writes += 1
        if self.error is not None:
            raise self.error
        self.values += [record.value for record in records]

    def close(self) -> None:
        self.closed = True


def test_everything_offered_is_written_in_order_in_few_writes() -> None:
    sink = ListSink()
    writer = BackgroundWriter(lambda: sink, name="test")
    assert all(writer.offer(message(i)) for i in range(1000))
    assert writer.close()
    assert sink.values == [b"%d" % i for i in range(1000)]
    assert (writer.written, writer.dropped, sink.closed) == (1000, 0, True)
    assert sink.writes < 10


def test_while_the_stream_hangs_offers_return_at_once_and_what_does_not_fit_is_counted_and_reported() -> None:
    sink = ListSink()
    sink.gate.clear()
    writer = BackgroundWriter(
        lambda: sink, name="test", limit=10, interval_s=0, on_lost=lambda n: Message(None, b"lost %d" % n, 0)
    )
    writer.offer(message(0))
    assert sink.entered.wait(30)
    taken = [writer.offer(message(i)) for i in range(1, 31)]
    assert (taken.count(True), writer.dropped) == (10, 20)
    sink.gate.set()
    assert writer.flush()
    writer.close()
    assert sink.values[:11] == [b"%d" % i for i in range(11)]
    assert sink.values[11:] == [b"lost 20"]


def test_closing_does_not_wait_for_a_stream_that_hangs() -> None:
    sink = ListSink()
    sink.gate.clear()
    writer = BackgroundWriter(lambda: sink, name="test", interval_s=0)
    writer.offer(message(1))
    assert not writer.close(timeout_s=0.01)
    assert not writer.offer(message(2))
    sink.gate.set()


def test_a_stream_that_fails_costs_its_records_and_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ListSink()
    writer = BackgroundWriter(lambda: sink, name="log stream", interval_s=0)
    sink.error = OSError("no space")
    for number in range(2):
        writer.offer(message(number))
        writer.flush()
    sink.error = None
    writer.offer(message(2))
    assert writer.close()
    assert sink.values == [b"2"]
    assert (writer.written, writer.dropped) == (1, 2)
    assert (
        capsys.readouterr().err.count("log stream: records are lost, cannot write: OSError('no space')") == 1
    )


def test_a_stream_that_cannot_be_opened_is_tried_again() -> None:
    attempts, sink = [], ListSink()

    def open_sink() -> ListSink:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("not yet")
        return sink

    writer = BackgroundWriter(open_sink, name="test", interval_s=0)
    writer.offer(message(1))
    writer.flush()
    writer.offer(message(2))
    assert writer.close()
    assert sink.values == [b"2"]
