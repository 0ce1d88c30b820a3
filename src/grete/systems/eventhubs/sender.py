"""Sends records to hubs and waits until they are acknowledged: no transactions, so at least once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from grete.clock import Clock
from grete.config.key_tables import eventhubs as keys
from grete.config.settings.eventhubs import HubsSettings
from grete.errors import StreamError
from grete.kafka.client import describe, reason_of
from grete.systems.base import Segment
from grete.systems.eventhubs.hubs import Hub, Hubs, Namespace
from grete.systems.records import unpack

_SETTINGS = {
    "enable.idempotence": False,  # not on every tier; a record that is sent again may be there twice
    "max.in.flight.requests.per.connection": 1,  # else one that is sent again could overtake its successor
    "linger.ms": 20,
    "batch.size": 512 * 1024,  # a request has at most 1 MB
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 2_147_483_647,
}
_STEP_S = 1.0
_TIMEOUT_S = 60.0


class _Reports:
    """What became of one segment's records."""

    def __init__(self) -> None:
        self.end = -1
        self.error: KafkaError | None = None

    def take(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = self.error or error
            return
        self.end = max(self.end, (message.offset() or 0) + 1)


class HubSender:
    """The outputs of one system on Event Hubs. Used by one thread at a time."""

    def __init__(self, hubs: Hubs, config: Mapping[str, str], system: str, clock: Clock) -> None:
        self._hubs = hubs
        self._clock = clock
        self._system = system
        self._limit_key = keys.LARGEST.named(system)
        settings = HubsSettings(config, system)
        self._limit, self._sends_keys = settings.largest_record, settings.sends_keys
        self._producers: dict[Namespace, Producer] = {}

    def send(self, segments: Iterable[Segment]) -> dict[tuple[str, int], int]:
        """Send all; returns, for each (stream, partition), the offset after the last record.

        Raises:
            StreamError: a record is too large, or a hub did not take one: others may be there.
        """
        reports: dict[tuple[str, int], tuple[Hub, _Reports]] = {}
        for segment in segments:
            hub = self._hubs.of(segment.stream)
            where = (segment.stream, segment.partition)
            _, taken = reports.setdefault(where, (hub, _Reports()))
            self._produce(hub, segment, taken)
        self._flush({hub.namespace for hub, _ in reports.values()})
        for hub, taken in reports.values():
            if taken.error is not None:
                raise self._refused(hub, describe(taken.error), taken.error.code())
        return {where: taken.end for where, (_, taken) in reports.items()}

    def _produce(self, hub: Hub, segment: Segment, taken: _Reports) -> None:
        batch = unpack(segment.data)
        columns = (batch.column(i).to_pylist() for i in range(3))
        producer = self._producer(hub.namespace)
        for key, value, timestamp_ms in zip(*columns, strict=True):
            self._check_size(hub, key, value)
            try:
                producer.produce(
                    hub.topic,
                    value,
                    key if self._sends_keys else None,
                    segment.partition,
                    taken.take,
                    timestamp_ms,
                )
            except KafkaException as error:
                reason = reason_of(error)
                raise self._refused(hub, describe(reason), reason.code()) from error

    def _check_size(self, hub: Hub, key: bytes | None, value: bytes | None) -> None:
        size = len(key or b"") + len(value or b"")
        if 0 < self._limit < size:
            raise StreamError(
                f"a record of {size} bytes for hub {hub.topic!r} is larger than {self._limit_key}={self._limit}. "
                f"Make it smaller; the service takes 1 MB, on the basic tier 256 KB"
            )

    def _flush(self, namespaces: Iterable[Namespace]) -> None:
        deadline_s = self._clock.monotonic_s() + _TIMEOUT_S
        for namespace in namespaces:
            producer = self._producers[namespace]
            while producer.flush(_STEP_S) > 0:
                if self._clock.monotonic_s() >= deadline_s:
                    raise StreamError(
                        f"{namespace.connection.servers} did not take the records of system {self._system!r} in "
                        f"{_TIMEOUT_S:.0f} s; some may be there, and the batch is repeated"
                    )

    def _producer(self, namespace: Namespace) -> Producer:
        if namespace not in self._producers:
            self._producers[namespace] = namespace.connection.new_sender(
                f"making a producer of system {self._system!r}", _SETTINGS
            )
        return self._producers[namespace]

    def _refused(self, hub: Hub, said: str, code: int) -> StreamError:
        way_out = (
            "; the service takes records of 1 MB, on the basic tier of 256 KB"
            if code == KafkaError.MSG_SIZE_TOO_LARGE
            else ""
        )
        return StreamError(
            f"hub {hub.topic!r} of system {self._system!r} did not take a record: {said}{way_out}. Others may be "
            f"there; the batch is repeated"
        )
