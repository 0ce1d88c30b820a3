"""A task that fails in the processes that are marked by their environment."""

from __future__ import annotations

import os

from grete.api import IncomingMessageEnvelope, MessageCollector, TaskCoordinator
from grete.testing.counting import CountingTask

FAILS = "TEST_TASK_FAILS"


class FailingHere(CountingTask):
    """Counts, but where TEST_TASK_FAILS is set."""

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        """See StreamTask."""
        if os.environ.get(FAILS):
            raise ValueError("not on this machine")
        super().process(envelope, collector, coordinator)
