"""Calls of a task for its messages, and whose doing an error in one is: in a worker or in the application's process.

A message that cannot be processed may be set aside. A full disk, a store that cannot be read or brokers that are away
say nothing about the message: the batch is given up and repeated, whatever the application made of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, Protocol

from grete.api import IncomingMessageEnvelope, MessageCollector
from grete.application.context import TaskControl
from grete.errors import ExpectationFailed, GreteError, WireError
from grete.model.ending import causes

FAILURES = (Exception, SystemExit)
"""Whatever a call of the application's code fails with. Its `sys.exit` ends no process of ours: a worker that ended
by it was begun again and again, without a word of the message."""


class TimedCollector(MessageCollector, Protocol):
    """A collector that knows the time of the message in hand."""

    timestamp_ms: int


def call_for_each(
    fields: Iterable[tuple[Any, ...]],
    process: Callable[[IncomingMessageEnvelope, Any, TaskControl], object],
    collector: TimedCollector,
    control: TaskControl,
) -> None:
    """Call `process` for each message, up to the one after which the task wants a commit."""
    # the constructor of a NamedTuple is a Python function; this is what it calls
    for envelope in map(tuple.__new__, repeat(IncomingMessageEnvelope), fields):
        collector.timestamp_ms = envelope[4]
        process(envelope, collector, control)
        if control.wants_commit:
            break


_OF_MESSAGES = (WireError, ExpectationFailed)
"""Serdes refuse values with the first."""


def is_machines_error(error: BaseException, *also: type[BaseException]) -> bool:
    """Whether the error, or what it was raised from or amid, is none of the application's and its message's."""
    return any(
        isinstance(one, (MemoryError, *also))
        or (isinstance(one, GreteError) and not isinstance(one, _OF_MESSAGES))
        for one in causes(error)
    )
