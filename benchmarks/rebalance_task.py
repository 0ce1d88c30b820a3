"""The task of `benchmarks.rebalance`: each output says which process made it, and when."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import grete


class Output(NamedTuple):
    """One output of a task; `at_s` is wall time."""

    task: str
    pid: int
    at_s: float


class Saying(grete.StreamTask):
    """Sends one output for each record."""

    process_id = staticmethod(os.getpid)

    def init(self, context: grete.TaskContext) -> None:
        """See StreamTask."""
        self._said_by = str(context.task_name), self.process_id()

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        """See StreamTask."""
        collector.send("local.said", list(Output(*self._said_by, time.time())), partition=0)


class Counting(Saying):
    """Counts its records in a store before it says so."""

    def init(self, context: grete.TaskContext) -> None:
        """See StreamTask."""
        super().init(context)
        self._counts = context.store("counts")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        """See StreamTask."""
        self._counts.put("records", (self._counts.get("records") or 0) + 1)
        super().process(envelope, collector, coordinator)


class SayingInSpark(Saying):
    """Says which container it is in: its worker's parent is of one JVM alone."""

    process_id = staticmethod(os.getppid)


class CountingInSpark(Counting):
    """As `SayingInSpark`, and counts."""

    process_id = staticmethod(os.getppid)
