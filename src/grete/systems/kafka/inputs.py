"""What arrives in topic partitions, through one consumer that stays at the end of what it has given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from grete.clock import Clock
from grete.errors import StreamUnreachable
from grete.kafka.client import KafkaConnection, Partition
from grete.kafka.errors import describe, reason_of
from grete.kafka.library import Consumer, KafkaError, KafkaException, Message, TopicPartition
from grete.kafka.ranges import READER_SETTINGS, READER_TUNABLE, refused
from grete.model.ids import SystemStreamPartition
from grete.systems.admin import PartitionOffsets
from grete.systems.inputs import Absent, Arrived, Inputs, Span, Wanted
from grete.systems.records import batches

Held = Callable[[str], Mapping[int, PartitionOffsets | None]]
"""The offsets of a stream's partitions; see `OffsetAdmin.reachable_offsets`."""
_CHUNK = 10_000
_LOOK_EVERY_S = 2.0
_SETTINGS = {**READER_SETTINGS, "queued.max.messages.kbytes": 32 * 1024}
"""One consumer has all partitions of a share."""


class KafkaInputs(Inputs):
    """See Inputs. A partition is fetched while it is wanted, and paused while it is not."""

    def __init__(self, connection: KafkaConnection, held: Held, clock: Clock) -> None:
        self._connection = connection
        self._held = held
        self._clock = clock
        self._look_at_s = clock.monotonic_s()
        self._absent = Absent()
        self._consumer: Consumer | None = None
        self._positions: dict[Partition, int] = {}
        """Where the consumer's next message of each assigned partition is."""
        self._paused: set[Partition] = set()
        self._kept: dict[Partition, list[Message]] = {}
        """Fetched and not given yet: behind the end of what was wanted."""

    def poll(self, wanted: Wanted, records: int, wait_s: float) -> list[Arrived]:
        """See Inputs."""
        self._follow({(ssp.stream, ssp.partition): span for ssp, span in wanted.items()})
        spans = {(ssp.stream, ssp.partition): (ssp, span) for ssp, span in wanted.items()}
        self._look(wanted)
        found = self._take({key: [] for key in spans if key in self._kept}, spans)
        if found:
            return found
        return self._take(self._fetched(records, wait_s), spans)

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
        idle = self._positions.keys() - wanted.keys()
        if idle != self._paused:
            self._pause(idle)

    def _assign(self) -> None:
        """All anew, which costs a request for each partition: at the start, and after an error."""
        if self._consumer is None:
            self._consumer = self._connection.new_consumer(
                "reading a share's inputs", _SETTINGS, READER_TUNABLE
            )
        self._kept.clear()
        self._consumer.assign([TopicPartition(*key, at) for key, at in self._positions.items()])
        self._paused = set()

    def _pause(self, idle: set[Partition]) -> None:
        assert self._consumer is not None
        if now := idle - self._paused:
            self._consumer.pause([TopicPartition(*key) for key in now])
        if again := self._paused - idle:
            self._consumer.resume([TopicPartition(*key) for key in again])
        self._paused = set(idle)

    def _fetched(self, records: int, wait_s: float) -> dict[Partition, list[Message]]:
        """Messages by partition. The client waits until it has as many as it was asked for: so first for one."""
        assert self._consumer is not None
        found: dict[Partition, list[Message]] = defaultdict(list)
        try:
            messages = self._consumer.consume(1, wait_s)
            if messages:
                messages += self._consumer.consume(min(records, _CHUNK), 0)
        except KafkaException as error:
            raise StreamUnreachable(f"reading inputs: {describe(reason_of(error))}") from error
        for message in messages:
            found[str(message.topic()), int(message.partition() or 0)].append(message)
        return found

    def _take(
        self,
        found: dict[Partition, list[Message]],
        spans: dict[Partition, tuple[SystemStreamPartition, Span]],
    ) -> list[Arrived]:
        """What is wanted, as columns; the rest is kept. Positions move behind what was given."""
        arrived = []
        for key, fetched in found.items():
            messages = [*self._kept.pop(key, ()), *fetched]
            if key not in spans:  # it was paused meanwhile
                self._kept[key] = messages
                continue
            ssp, span = spans[key]
            taken = self._sort_out(key, messages, span)
            if self._positions[key] == span.start and not taken:
                continue
            rows = next(batches([taken]))[1] if taken else None
            arrived.append(Arrived(ssp, rows, self._positions[key]))
        return arrived

    def _sort_out(self, key: Partition, messages: list[Message], span: Span) -> list[Message]:
        last = messages[-1]
        if span.end is None and not any(m.error() for m in messages):
            self._positions[key] = (last.offset() or 0) + 1
            return messages
        taken, position = [], self._positions[key]
        for place, message in enumerate(messages):
            error, offset = message.error(), message.offset() or 0
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    self._positions[key] = position
                    self._refuse(error, key)
                else:
                    position = max(position, offset if span.end is None else min(offset, span.end))
            elif span.end is not None and offset >= span.end:
                self._kept[key] = messages[place:]
                position = max(span.end, position)
                break
            else:
                taken.append(message)
                position = offset + 1
        self._positions[key] = position
        return taken

    def _refuse(self, error: KafkaError, key: Partition) -> None:
        """Raises what it means, unless the client goes on by itself."""
        reason = refused(self._connection, error, key, self._positions[key])
        if reason is not None:
            self._positions[key] = -1
            raise reason

    def close(self) -> None:
        """See Inputs."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
