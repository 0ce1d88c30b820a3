"""A task for tests of what a store returns: each way to read it shows in the outputs."""

from __future__ import annotations

from grete.api import IncomingMessageEnvelope, MessageCollector, StreamTask, TaskContext, TaskCoordinator


class Shelf(StreamTask):
    """Puts a message's value under its key, where None deletes; `look` sends what each way to read gives."""

    def init(self, context: TaskContext) -> None:
        """See StreamTask."""
        self._shelf = context.store("shelf")
        self._output = context.config["task.outputs"]

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        """See StreamTask."""
        if envelope.key != "look":
            self._shelf.put(envelope.key, envelope.message)
            return
        keys = "abcdef"
        by_get = {key: value for key in keys if (value := self._shelf.get(key)) is not None}
        ways = [by_get, self._shelf.get_all(keys), dict(self._shelf.range("a", "g")), dict(self._shelf.all())]
        collector.send(self._output, ways)
