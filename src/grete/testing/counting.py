"""The task of many tests: whatever is lost, repeated or out of order shows in its outputs."""

from __future__ import annotations

from grete.api import IncomingMessageEnvelope, MessageCollector, StreamTask, TaskContext, TaskCoordinator


class CountingTask(StreamTask):
    """Counts each key in the store `counts`, and sends every count to the one stream of `task.outputs`."""

    def init(self, context: TaskContext) -> None:
        """See StreamTask."""
        self._counts = context.store("counts")
        self._output = context.config["task.outputs"]

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        """See StreamTask."""
        count = (self._counts.get(envelope.key) or 0) + 1
        self._counts.put(envelope.key, count)
        collector.send(self._output, count, key=envelope.key)
