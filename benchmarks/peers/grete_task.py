"""grete: a StreamTask with a store; outputs, changelog and checkpoints are one transaction a batch."""

from __future__ import annotations

import grete


class Count(grete.StreamTask):
    def init(self, context: grete.TaskContext) -> None:
        self.target = context.config["bench.target"]
        self.counts = context.store("counts")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        key = envelope.message["key"]
        number = (self.counts.get(key) or 0) + 1
        self.counts.put(key, number)
        collector.send(self.target, {"key": key, "count": number}, key=key)


class Pass(grete.StreamTask):
    def init(self, context: grete.TaskContext) -> None:
        self.target = context.config["bench.target"]

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        key = envelope.message["key"]
        collector.send(self.target, {"key": key, "count": envelope.message["n"]}, key=key)
