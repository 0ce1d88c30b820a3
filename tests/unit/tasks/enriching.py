"""Tasks that read a store which streams fill; in a process of its own, too, so it imports grete alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grete


class Enrich(grete.StreamTask):
    """Says of each order what the store knows of its customer."""

    def init(self, context: grete.TaskContext) -> None:
        self.profiles = context.store("profiles")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.message == "forget":
            self.profiles.delete(envelope.key)
        collector.send("local.out", [envelope.key, self.profiles.get(envelope.key)])


class Awaited(grete.AsyncStreamTask):
    """The same, several at once."""

    def init(self, context: grete.TaskContext) -> None:
        self.profiles = context.store("profiles")

    async def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        found = self.profiles.get(envelope.key)
        await asyncio.sleep(0)
        collector.send("local.out", [envelope.key, found])


class Names(grete.SideInputsProcessor):
    """Keeps the names of customers, and how often each was changed."""

    def init(self, context: grete.TaskContext) -> None:
        self.least = int(context.config["least.letters"])

    def process(self, envelope: Any, store: grete.KeyValueStore) -> Iterable[tuple[Any, Any]]:
        if envelope.system_stream_partition.stream == "banned":
            return [(envelope.key, None), (None, "passed over")]
        if len(envelope.message) < self.least:
            raise ValueError(f"{envelope.message} is too short")
        _, changes = store.get(envelope.key) or ("", 0)
        return [(envelope.key, [envelope.message, changes + 1])]


class Loud(grete.SideInputsProcessor):
    """Keeps names in capitals."""

    def process(self, envelope: Any, store: grete.KeyValueStore) -> Iterable[tuple[Any, Any]]:
        yield envelope.key, envelope.message.upper()


class NoProcessor:
    """Has no base."""
