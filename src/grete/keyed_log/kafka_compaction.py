"""Making a broker compact a topic now.

A broker compacts by itself when enough of a log is shadowed, and never its newest segment. So for a moment the topic
gets settings under which the newest segment ends at once and the smallest shadow is reason enough; an aborted record,
which no reader sees, begins the next segment; and the topic gets its own settings back.
"""

from __future__ import annotations

from itertools import count

from grete.clock import Clock, Deadline
from grete.errors import LogError
from grete.kafka.errors import translated
from grete.kafka.log_clients import KafkaClients
from grete.kafka.topics import alter_topic_config, topic_config
from grete.keyed_log.kafka_reader import LogReader
from grete.keyed_log.kafka_writer import KafkaWriter, NotWritten

_AT_ONCE = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0"}
_TIMEOUT_S = 120.0
_LOOK_S = 0.2


def compact_now(clients: KafkaClients, reader: LogReader, writer: KafkaWriter, clock: Clock) -> int:
    """Have every shadowed record dropped; returns how many went. Needs memory for the live keys.

    Raises:
        LogError: the brokers did not do it in two minutes; they go on with it by themselves.
    """
    shadowed = _shadowed(reader)
    if not shadowed:
        return 0
    with translated(f"reading the configuration of topic {clients.topic}"):
        own = topic_config(clients, clients.topic, own_only=True)
    alter_topic_config(clients, clients.topic, _AT_ONCE)
    try:
        _await_gone(clients, reader, writer, clock, shadowed)
    finally:
        alter_topic_config(clients, clients.topic, {name: own.get(name) for name in _AT_ONCE})
    return len(shadowed)


def _shadowed(reader: LogReader) -> list[int]:
    """The offsets of records that a later record of the same key shadows, in no order."""
    last: dict[bytes, int] = {}
    shadowed = []
    for record in reader.records(-1, reader.last_offset()):
        older = last.get(record.key)
        if older is not None:
            shadowed.append(older)
        last[record.key] = record.offset
    return shadowed


def _await_gone(
    clients: KafkaClients, reader: LogReader, writer: KafkaWriter, clock: Clock, shadowed: list[int]
) -> None:
    """The cleaner goes from front to back, so once the last shadowed record is gone all are."""
    last, deadline = max(shadowed), Deadline(clock, _TIMEOUT_S, pauses_s=(_LOOK_S, _LOOK_S))
    for number in count():
        if number % 10 == 0:  # again when the first came before the brokers knew of the settings
            _begin_segment(reader, writer, clock)
        if not any(
            message.offset() == last for chunk in reader.messages(last, last + 1) for message in chunk
        ):
            return
        if not deadline.pause():
            raise LogError(f"topic {clients.topic} was not compacted in {_TIMEOUT_S:.0f} s")


def _begin_segment(reader: LogReader, writer: KafkaWriter, clock: Clock) -> None:
    deadline_s = clock.monotonic_s() + _TIMEOUT_S
    try:
        if not writer.is_open:
            writer.open(deadline_s)
        writer.append_and_abort([writer.place], deadline_s)
    except NotWritten:
        writer.drop()
    else:
        reader.settled_end()
