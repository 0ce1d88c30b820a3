"""A stream as the real CoordinatorStreamSystemConsumer reads it: distinct messages, in order of last writing.

grete itself keeps the last value of each key only (`CoordinatorStream`). This is the original's view, in which old
values and tombstones stay; it is bounded by the log, not by live keys, and serves comparison and migration.
"""

from __future__ import annotations

from collections.abc import Iterable

from grete.keyed_log.base import Record
from grete.model.messages import SET_CONFIG, CoordinatorMessage
from grete.wire.coordinator_message import decode


def bootstrap(records: Iterable[Record]) -> tuple[list[CoordinatorMessage], dict[str, str]]:
    """(distinct messages, configuration). A message equal to an earlier one takes its place at the end.

    Raises:
        WireError: a record is undecodable, where the real consumer fails as a whole.
    """
    messages: dict[CoordinatorMessage, None] = {}
    config: dict[str, str] = {}
    for record in records:
        message = decode(record.key, record.value)
        messages.pop(message, None)
        messages[message] = None
        if message.type == SET_CONFIG:
            if message.values is None:
                config.pop(message.key, None)
            else:
                config[message.key] = message.values.get("value", "")
    return list(messages), config


def of_type(messages: Iterable[CoordinatorMessage], message_type: str) -> list[CoordinatorMessage]:
    """The messages of a type, whatever its case (S2-26)."""
    return [message for message in messages if message.type.lower() == message_type.lower()]
