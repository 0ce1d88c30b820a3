"""Sends records to hubs and waits until they are acknowledged: no transactions, so at least once, in order."""

from __future__ import annotations

from collections.abc import Iterable

from grete.clock import Clock, Deadline
from grete.config.key_tables import eventhubs as keys
from grete.config.settings.eventhubs import HubsSettings
from grete.errors import StreamError
from grete.kafka.sender import Acknowledged, AcknowledgedSender, Row
from grete.model.streams import Headers
from grete.systems.commit_group import SegmentWrite
from grete.systems.eventhubs.hubs import Hub, Hubs, Namespace
from grete.systems.records import header_bytes, rows_of, unpack

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


class HubSender:
    """The outputs of one system on Event Hubs. Used by one thread at a time."""

    def __init__(self, hubs: Hubs, settings: HubsSettings, clock: Clock) -> None:
        self._hubs = hubs
        self._clock = clock
        self._system = settings.name
        self._limit_key = keys.LARGEST.named(settings.name)
        self._limit, self._sends_keys = settings.largest_record, settings.sends_keys
        self._senders: dict[Namespace, AcknowledgedSender] = {}

    def send(self, segments: Iterable[SegmentWrite]) -> dict[tuple[str, int], int]:
        """Send all; returns, for each (stream, partition), the offset after the last record.

        Raises:
            StreamError: a record is too large, or a hub did not take one: others may be there.
        """
        reports: dict[tuple[str, int], tuple[Hub, Acknowledged]] = {}
        for segment in segments:
            hub = self._hubs.of(segment.stream)
            where = (segment.stream, segment.partition)
            _, taken = reports.setdefault(where, (hub, Acknowledged()))
            self._produce(hub, segment, taken)
        self._flush({hub.namespace for hub, _ in reports.values()})
        for hub, taken in reports.values():
            self._check(hub, taken)
        return {where: taken.end for where, (_, taken) in reports.items()}

    def _produce(self, hub: Hub, segment: SegmentWrite, taken: Acknowledged) -> None:
        self._sender(hub.namespace).send(
            hub.topic,
            (
                self._row(hub, segment.partition, key, value, timestamp_ms, headers)
                for _, key, value, timestamp_ms, headers in rows_of(0, unpack(segment.data))
            ),
            taken,
        )
        self._check(hub, taken)

    def _row(
        self,
        hub: Hub,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> Row:
        self._check_size(hub, len(key or b"") + len(value or b"") + header_bytes(headers))
        return partition, key if self._sends_keys else None, value, timestamp_ms, headers

    def _check_size(self, hub: Hub, size: int) -> None:
        if 0 < self._limit < size:
            raise StreamError(
                f"a record of {size} bytes for hub {hub.topic!r} is larger than {self._limit_key}={self._limit}. "
                f"Make it smaller; the service takes 1 MB, on the basic tier 256 KB"
            )

    def _flush(self, namespaces: Iterable[Namespace]) -> None:
        deadline = Deadline(self._clock, _TIMEOUT_S)
        for namespace in namespaces:
            while not self._senders[namespace].flush(_STEP_S):
                if deadline.is_over:
                    raise StreamError(
                        f"{namespace.connection.servers} did not take the records of system {self._system!r} in "
                        f"{_TIMEOUT_S:.0f} s; some may be there, and the batch is repeated"
                    )

    def _sender(self, namespace: Namespace) -> AcknowledgedSender:
        if namespace not in self._senders:
            self._senders[namespace] = AcknowledgedSender(
                namespace.connection, f"making a producer of system {self._system!r}", _SETTINGS
            )
        return self._senders[namespace]

    def _check(self, hub: Hub, taken: Acknowledged) -> None:
        if taken.refusal is None:
            return
        limits = "; the service takes records of 1 MB, on the basic tier of 256 KB"
        raise StreamError(
            f"hub {hub.topic!r} of system {self._system!r} did not take a record: {taken.refusal}"
            f"{limits if taken.is_too_large else ''}. Others may be there; the batch is repeated"
        )
