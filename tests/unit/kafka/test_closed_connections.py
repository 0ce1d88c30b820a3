"""What is left of a connection that was closed, while something refers to it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from pathlib import Path

from grete.clock import SystemClock
from grete.errors import LogUnreachable
from grete.kafka.client import KafkaConnection

def native_clients():
    # each has a main thread
    return sum(thread.read_text().strip() == "rdk:main" for thread in Path("/proc/self/task").glob("*/comm"))

connection = KafkaConnection({"bootstrap.servers": "127.0.0.1:1"}, 1.0, SystemClock())
print(native_clients())
connection.close()
connection.close()
print(native_clients())
try:
    connection.await_login("asking")
except LogUnreachable as error:
    print(error)
"""
"""A process of its own: clients of other tests come and go in this one."""


def test_a_closed_connection_has_no_thread_though_it_is_referred_to() -> None:
    """A coordinator that lived through four outages of its brokers had 16 more: requests that wait had them."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    opened, closed, said = ran.stdout.splitlines()
    assert (opened, closed) == ("1", "0")
    assert "the connection to 127.0.0.1:1 is closed" in said
