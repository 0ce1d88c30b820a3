"""Reading exact ranges of topic partitions: committed records only, each with its offset, up to an end that is known.

A range may end in offsets that no reader sees (transaction markers, aborted or compacted records), so it is over when
the client stands at its end, not when the last record has come. A consumer stays at the end of what it read: the next
range of a partition mostly begins there, and its records are fetched already.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from grete.clock import Clock, Deadline
from grete.errors import OffsetOutOfRange, OffsetsRemoved, StreamError, StreamNotFound, StreamUnreachable
from grete.kafka.client import KafkaConnection, Partition
from grete.kafka.errors import describe, is_temporary, reason_of
from grete.kafka.library import Consumer, KafkaError, KafkaException, Message, TopicPartition

_CHUNK = 10_000
"""Records at once: 1 µs each to fetch, and as many message objects in memory."""
_POLL_S = 0.2
_FIRST_POLL_S = 0.002
_CONSUMERS = 8
"""Partitions that stay assigned; a worker with more of them pays 4 ms for each range."""
READER_SETTINGS = {
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.error.backoff.ms": 50,
    # By default a client whose queue is full does nothing for a second. With 2 ms it looked 500 times a second for as
    # long as nobody read on; in 10 ms no reader empties a queue.
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 16 * 1024,
    "enable.sparse.connections": False,
}
"""Of consumers that fetch ahead, and say where a partition ends."""
READER_TUNABLE = {
    "fetch.wait.max.ms": 100,
    "max.partition.fetch.bytes": 1 << 20,  # 8 MB make the first record of a range wait for 60 ms, 1 MB for 4
}
"""What the configuration may change of them."""
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_UNKNOWN = (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


@dataclass(slots=True)
class _Reader:
    """A consumer and where it stands in its partition; `left` was fetched and is behind the last range's end."""

    consumer: Consumer
    position: int = -1
    left: list[Message] = field(default_factory=list)


class RangeReader:
    """Reads ranges of one system's partitions. Used by one thread; an unfinished iterator ends with the next read."""

    def __init__(self, connection: KafkaConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._readers: OrderedDict[Partition, _Reader] = OrderedDict()

    def read(self, stream: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The records with start <= offset < end, in order, in chunks; their offsets may have gaps.

        Raises:
            OffsetsRemoved: `start` is below the oldest offset; names what is lost.
            OffsetOutOfRange: it is above the upcoming one.
            StreamNotFound: no such partition.
            StreamUnreachable: the brokers gave nothing for the whole timeout.
        """
        if start >= end:
            return
        reader = self._reader((stream, partition), start)
        timeout_s = self._connection.timeout_s
        deadline = Deadline(self._clock, timeout_s)
        while reader.position < end:
            messages = reader.left or self._consume(reader, (stream, partition))
            reader.left = []
            if messages:
                deadline = Deadline(self._clock, timeout_s)
                yield from self._take(reader, messages, (stream, partition), end)
            elif deadline.is_over:
                raise StreamUnreachable(
                    f"{stream} partition {partition}: no record at offset {reader.position} or later in "
                    f"{timeout_s:.0f} s, though the partition ends at {end} or later; are brokers up?"
                )

    def _reader(self, key: Partition, start: int) -> _Reader:
        reader = self._readers.pop(key, None)
        if reader is None and len(self._readers) >= _CONSUMERS:
            reader = self._readers.popitem(last=False)[1]
            reader.position = -1
        if reader is None:
            reader = _Reader(
                self._connection.new_consumer(f"reading {key[0]}", READER_SETTINGS, READER_TUNABLE)
            )
        self._readers[key] = reader
        if reader.position != start:
            reader.left = []
            reader.consumer.assign([TopicPartition(*key, start)])
            reader.position = start
        return reader

    def _consume(self, reader: _Reader, key: Partition) -> list[Message]:
        try:
            # the call waits until it has as many as asked for, so first take what is there
            found = reader.consumer.consume(_CHUNK, _FIRST_POLL_S)
            return found or reader.consumer.consume(1, _POLL_S)
        except KafkaException as error:
            raise StreamUnreachable(f"reading {key[0]}: {describe(reason_of(error))}") from error

    def _take(
        self, reader: _Reader, messages: list[Message], key: Partition, end: int
    ) -> Iterator[list[Message]]:
        """Records below `end` as a batch; the others stay in the reader."""
        position, reader.position = reader.position, -1  # and stays so where one is refused
        taken, reader.left, reader.position = sort_out(self._connection, key, messages, position, end)
        if taken:
            yield taken

    def range_of(self, key: Partition) -> tuple[int, int]:
        """(oldest, upcoming) of a partition.

        Raises:
            StreamError: no answer.
        """
        return _range_of(self._connection, key)

    def close(self) -> None:
        """Close the consumers."""
        while self._readers:
            self._readers.popitem()[1].consumer.close()


def sort_out(
    connection: KafkaConnection, key: Partition, messages: list[Message], position: int, end: int | None
) -> tuple[list[Message], list[Message], int]:
    """What a consumer that stood at `position` got: the records below `end`, those behind, and where it stands now.

    It stands behind what no reader sees, too, when it is told that a partition ends there.

    Raises:
        StreamError: as a mark among them says.
    """
    last = messages[-1].offset() or 0
    if (end is None or last < end) and not any(m.error() for m in messages):
        return messages, [], last + 1
    taken: list[Message] = []
    for place, message in enumerate(messages):
        error, offset = message.error(), message.offset() or 0
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            position = max(position, offset if end is None else min(offset, end))
        elif error is not None:
            reason = _refused(connection, error, key, position)
            if reason is not None:
                raise reason
        elif end is not None and offset >= end:
            return taken, messages[place:], max(end, position)
        else:
            taken.append(message)
            position = offset + 1
    return taken, [], position


def _refused(
    connection: KafkaConnection, error: KafkaError, key: Partition, position: int
) -> StreamError | None:
    """The error of a consumer that stood at `position`; None where the client goes on by itself."""
    stream, partition = key
    if error.code() in _GONE:
        return _not_there(connection, key, position)
    if error.code() in _UNKNOWN:
        return StreamNotFound(f"there is no partition {partition} of {stream!r}: {error.str()}")
    if error.fatal() or not is_temporary(error):
        return StreamError(f"reading {stream} partition {partition}: {describe(error)}")
    return None


def _not_there(connection: KafkaConnection, key: Partition, position: int) -> OffsetOutOfRange:
    oldest, upcoming = _range_of(connection, key)
    stream, partition = key
    if position < oldest:
        return OffsetsRemoved(
            f"{stream} partition {partition} holds offsets {oldest} to before {upcoming}: those from {position} "
            f"to before {oldest} are lost, its retention has deleted them"
        )
    return OffsetOutOfRange(
        f"{stream} partition {partition} holds offsets {oldest} to before {upcoming}, and {position} was asked "
        f"for: the topic was deleted and recreated, or lost records"
    )


def _range_of(connection: KafkaConnection, key: Partition) -> tuple[int, int]:
    try:
        return connection.held(key[0], [key[1]])[key[1]]
    except KafkaException as error:
        raise StreamUnreachable(f"reading the ends of {key[0]}: {describe(reason_of(error))}") from error
