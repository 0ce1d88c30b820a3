"""What arrives in topic partitions, through one consumer that stays at the end of what it has given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from grete.clock import Clock
from grete.errors import StreamUnreachable
from grete.kafka.client import KafkaConnection, Partition
from grete.kafka.errors import describe, reason_of
from grete.kafka.library import Consumer, KafkaException, Message, TopicPartition
from grete.kafka.ranges import READER_SETTINGS, READER_TUNABLE, sort_out
from grete.model.ids import SystemStreamPartition
from grete.systems.admin import PartitionOffsets
from grete.systems.inputs import Absent, Arrived, Inputs, Span, Wanted, share_out
from grete.systems.records import batches

Held = Callable[[str], Mapping[int, PartitionOffsets | None]]
"""The offsets of a stream's partitions; see `OffsetAdmin.reachable_offsets`."""
_CHUNK = 10_000
_LOOK_EVERY_S = 2.0
_SETTINGS = {**READER_SETTINGS, "queued.max.messages.kbytes": 8 * 1024}
"""One consumer has all partitions of a share, and one queue for them."""
_KEPT = (40_000, 8 << 20)
"""Messages and bytes that may be kept, by equal parts of each partition, before it is fetched no further."""


@dataclass(slots=True)
class _Fetched:
    """Messages of a partition that were fetched and not given yet."""

    messages: list[Message] = field(default_factory=list)
    is_full: bool = False

    def note_size(self, partitions: int) -> None:
        """Look whether it has its part, or has room again; resuming costs what the client had fetched meanwhile."""
        count, size = (most // partitions for most in _KEPT)
        if self.is_full:
            count, size = count // 4, size // 4
        held = self.messages
        self.is_full = bool(held) and (len(held) > count or sum(map(len, held)) > size)


class KafkaInputs(Inputs):
    """See Inputs. A partition is fetched while it is wanted and its records are taken, and paused while not.

    What one partition has waiting does not stand before the others: it is kept apart, up to a bound.
    """

    def __init__(self, connection: KafkaConnection, held: Held, clock: Clock) -> None:
        self._connection = connection
        self._held = held
        self._clock = clock
        self._look_at_s = clock.monotonic_s()
        self._absent = Absent()
        self._consumer: Consumer | None = None
        self._positions: dict[Partition, int] = {}
        """Where the next message to give of each assigned partition is."""
        self._paused: set[Partition] = set()
        self._kept: defaultdict[Partition, _Fetched] = defaultdict(_Fetched)
        self._turn = 0

    def poll(self, wanted: Wanted, records: int, wait_s: float) -> list[Arrived]:
        """See Inputs."""
        spans = {(ssp.stream, ssp.partition): (ssp, span) for ssp, span in wanted.items()}
        self._follow({key: span for key, (_, span) in spans.items()})
        self._look(wanted)
        until_s = self._clock.monotonic_s() + wait_s
        while True:
            self._fetch(spans.keys(), records, wait_s)
            found = self._take(spans, records)
            # the client also gives where a partition ends, which is no news where everything before it was given
            wait_s = until_s - self._clock.monotonic_s()
            if found or wait_s <= 0 or any(kept.messages for kept in self._kept.values()):
                break
        self._hold_back(spans.keys())
        return found

    def _look(self, wanted: Wanted) -> None:
        """Now and then ask the brokers, who else stay silent when they are away or a topic has been recreated."""
        now_s = self._clock.monotonic_s()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        held = {stream: self._held(stream) for stream in {ssp.stream for ssp in wanted}}
        self._absent.note(ssp for ssp in wanted if held[ssp.stream][ssp.partition] is None)

    def _follow(self, wanted: dict[Partition, Span]) -> None:
        """Let the consumer stand where the caller goes on."""
        moved = [key for key, span in wanted.items() if self._positions.get(key) != span.start]
        if moved or self._consumer is None:
            for key in moved:
                self._positions[key] = wanted[key].start
            self._assign()

    def _assign(self) -> None:
        """All anew, which costs a request for each partition: at the start, and after an error."""
        if self._consumer is None:
            self._consumer = self._connection.new_consumer(
                "reading a share's inputs", _SETTINGS, READER_TUNABLE
            )
        self._kept.clear()
        self._consumer.assign([TopicPartition(*key, at) for key, at in self._positions.items()])
        self._paused = set()

    def _hold_back(self, wanted: Collection[Partition]) -> None:
        """Fetch no further where nothing is wanted, or enough is kept."""
        for kept in self._kept.values():
            kept.note_size(len(self._positions))
        idle = {key for key in self._positions if key not in wanted or self._kept[key].is_full}
        if idle != self._paused:
            self._pause(idle)

    def _pause(self, idle: set[Partition]) -> None:
        assert self._consumer is not None
        if now := idle - self._paused:
            self._consumer.pause([TopicPartition(*key) for key in now])
        if again := self._paused - idle:
            self._consumer.resume([TopicPartition(*key) for key in again])
        self._paused = set(idle)

    def _fetch(self, wanted: Collection[Partition], records: int, wait_s: float) -> None:
        """Keep what the client has, if it is asked for few: its one queue has the records of others behind those."""
        held = sum(len(self._kept[key].messages) for key in wanted)
        if not held:
            # the client waits until it has as many as it was asked for: so first for one
            held = self._consume(1, wait_s)
            if not held:
                return
        if held < min(records, _CHUNK):
            self._consume(min(records, _CHUNK) - held, 0)
        left = _KEPT[0] if records < _CHUNK else 0
        while left > 0 and any(not self._kept[key].messages for key in wanted):
            fetched = self._consume(_CHUNK, 0)
            left -= fetched
            if fetched < _CHUNK:
                break

    def _consume(self, records: int, wait_s: float) -> int:
        assert self._consumer is not None
        try:
            messages = self._consumer.consume(records, wait_s)
        except KafkaException as error:
            raise StreamUnreachable(f"reading inputs: {describe(reason_of(error))}") from error
        for message in messages:
            self._kept[str(message.topic()), int(message.partition() or 0)].messages.append(message)
        return len(messages)

    def _take(
        self, spans: Mapping[Partition, tuple[SystemStreamPartition, Span]], records: int
    ) -> list[Arrived]:
        """What is wanted, as columns; the rest is kept. Positions move behind what was given."""
        shares = share_out({key: len(self._kept[key].messages) for key in spans}, records, self._turn)
        self._turn += 1
        arrived = []
        for key, count in shares.items():
            if not count:
                continue
            (ssp, span), kept = spans[key], self._kept[key]
            messages, later = kept.messages[:count], kept.messages[count:]
            at, self._positions[key] = self._positions[key], -1  # and stays so where one is refused
            taken, behind, self._positions[key] = sort_out(self._connection, key, messages, at, span.end)
            kept.messages = [*behind, *later] if behind else later
            if taken or self._positions[key] != span.start:
                rows = next(batches([taken]))[1] if taken else None
                arrived.append(Arrived(ssp, rows, self._positions[key]))
        return arrived

    def close(self) -> None:
        """See Inputs."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
