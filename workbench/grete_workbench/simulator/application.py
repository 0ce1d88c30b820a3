"""The job that is simulated: counts messages by key, and says of each message which one of its key it was."""

from __future__ import annotations

from typing import Any

from grete.api import StreamTask

STORE = "counts"
OUTPUT = "out"
UNFIT = "test.unfit"
"""The key of a configuration that names a container which does not get to work with it."""


class CountTask(StreamTask):
    """One output for each message, with its origin and the count of its key so far."""

    def init(self, context: Any) -> None:
        """See StreamTask."""
        self._counts = context.store(STORE)

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        """See StreamTask."""
        count = (self._counts.get(envelope.key) or 0) + 1
        self._counts.put(envelope.key, count)
        origin = envelope.system_stream_partition
        said = [origin.partition, int(envelope.offset), count, envelope.message]
        collector.send(f"{origin.system}.{OUTPUT}", said, key=envelope.key)
