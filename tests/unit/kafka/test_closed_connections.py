"""What is left of a connection that was closed, while something refers to it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.errors import LogUnreachable
from grete.kafka.client import KafkaConnection


def native_clients() -> int:
    """The clients of this process: each has a main thread."""
    return sum(thread.read_text().strip() == "rdk:main" for thread in Path("/proc/self/task").glob("*/comm"))


def test_a_closed_connection_has_no_thread_though_it_is_referred_to() -> None:
    """A coordinator that lived through four outages of its brokers had 16 more: requests that wait had them."""
    gc.collect()
    before = native_clients()
    connection = KafkaConnection({"bootstrap.servers": "127.0.0.1:1"}, 1.0, SystemClock())
    assert native_clients() == before + 1
    connection.close()
    connection.close()
    assert native_clients() == before
    with pytest.raises(LogUnreachable, match=r"the connection to 127\.0\.0\.1:1 is closed"):
        connection.await_login("asking")
