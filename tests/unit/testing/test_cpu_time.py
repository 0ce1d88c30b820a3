from __future__ import annotations

import subprocess
import sys
import threading
import time

from grete.clock import CpuTime


def compute(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_what_all_threads_compute_is_said_once() -> None:
    cpu = CpuTime()
    began_s = time.process_time()
    assert cpu.since_last_s() >= began_s
    threads = [threading.Thread(target=compute, args=(0.05,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cpu.since_last_s() >= 0.1
    assert cpu.since_last_s() < 0.1


FORKED = """
import os, time
from grete.clock import CpuTime

cpu = CpuTime()
while time.process_time() < 0.5:
    pass
assert cpu.since_last_s() >= 0.5
if not os.fork():
    os._exit(0 if cpu.since_last_s() < 0.5 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_process_that_was_forked_begins_at_nothing() -> None:
    """In a process of its own: this one has threads."""
    subprocess.run([sys.executable, "-c", FORKED], check=True)
