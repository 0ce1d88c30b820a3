"""Tasks of elastic jobs, in a module that a process beside the worker can load."""

from __future__ import annotations

from typing import Any

import grete


class Note(grete.StreamTask):
    """Sends each message with the task that has it, counted by key; commits at the message "commit"."""

    def init(self, context: grete.TaskContext) -> None:
        self.task = context.task_name
        self.counts = context.store("counts")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> Any:
        key = str(envelope.key)
        count = (self.counts.get(key) or 0) + 1
        self.counts.put(key, count)
        ssp = envelope.system_stream_partition
        assert ssp.key_bucket == -1, "as the stream has it"
        collector.send("local.out", [self.task, envelope.key, int(envelope.offset), ssp.partition, count])
        if envelope.message == "commit":
            coordinator.commit()
        if envelope.message == "bad":
            raise ValueError("bad")
        if envelope.message == "shutdown":
            coordinator.shutdown()


class Awaited(grete.AsyncStreamTask):
    """The same, asynchronous."""

    init = Note.init

    async def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        Note.process(self, envelope, collector, coordinator)  # type: ignore[arg-type] # it has what that needs


class Plain(grete.StreamTask):
    """As `Note`, without a store."""

    def init(self, context: grete.TaskContext) -> None:
        self.task = context.task_name

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        ssp = envelope.system_stream_partition
        collector.send("local.out", [self.task, envelope.key, int(envelope.offset), ssp.partition, 1])
