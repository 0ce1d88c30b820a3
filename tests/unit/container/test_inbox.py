"""The wait of a coordinator's loop: it ends with the first of what it waits for."""

from __future__ import annotations

import os
import threading

from grete.assembly.inbox import Inbox
from grete.coordinator.events import ContainerCommitted, Tick
from grete.model.ids import ContainerId

FIRST, SECOND = ContainerCommitted(ContainerId("0"), 1), ContainerCommitted(ContainerId("1"), 1)
_LONG_S = 3600.0


def test_events_come_in_their_order_and_then_ticks() -> None:
    inbox = Inbox()
    inbox.post(FIRST)
    inbox.post(SECOND)
    assert [inbox.get(_LONG_S), inbox.get(_LONG_S), inbox.get(0)] == [FIRST, SECOND, Tick()]


def test_an_event_ends_the_wait() -> None:
    inbox = Inbox()
    threading.Timer(0.01, inbox.post, [FIRST]).start()
    assert inbox.get(_LONG_S) == FIRST


def test_a_readable_descriptor_ends_the_wait() -> None:
    inbox = Inbox()
    ended, end = os.pipe()
    os.close(end)
    assert inbox.get(_LONG_S, [ended]) == Tick()
    inbox.post(FIRST)
    assert inbox.get(_LONG_S, [ended]) == FIRST
    os.close(ended)


def test_who_waits_can_be_woken_without_an_event() -> None:
    inbox = Inbox()
    inbox.wake()
    assert inbox.get(_LONG_S) == Tick()
    assert inbox.get(0.0) == Tick(), "once"
