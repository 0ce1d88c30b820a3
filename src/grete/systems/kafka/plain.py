"""A topic that is written without transactions, for what may be lost but must never be waited for: logs.

A transaction a second from each process would put a marker behind every few records, and a process that is killed
amid one would keep the readers of all the others waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from grete.clock import Clock
from grete.config.settings import Settings
from grete.errors import StreamError, StreamUnreachable
from grete.kafka.client import KafkaConnection, describe, is_temporary, reason_of
from grete.kafka.settings import checkpoint_log_settings
from grete.model.streams import StreamSpec
from grete.systems.base import Message
from grete.systems.kafka.append import partition_for
from grete.systems.kafka.topics import StreamSettings, Topics
from grete.systems.log_sink import LogStream
from grete.systems.partitioner import kafka_partitioner

_SETTINGS = {"enable.idempotence": True}
_TUNABLE = {"linger.ms": 20}
_STEP_S = 1.0


class PlainTopic:
    """The topic, made when it is not there. Used by one thread."""

    def __init__(self, target: LogStream, clock: Clock) -> None:
        """It has `partitions` partitions at least on return.

        Raises:
            ConfigError: no brokers, or settings that only Java can use.
            LogError: no broker answers, or they do not let us in.
            StreamError: the topic cannot be made, grown or described.
        """
        config, stream, partitions = target.config, target.stream, target.partitions
        settings = checkpoint_log_settings(config, stream.system)
        self._connection = KafkaConnection(
            settings.client, settings.timeout_s, clock, settings.origin, settings.tuning
        )
        self._connection.await_login(f"writing {stream}")
        self._stream = stream
        self._clock = clock
        topics = Topics(self._connection, stream.system, clock)
        spec = StreamSpec(stream.stream, partitions)
        if topics.find(spec.stream) is None:
            topics.create(spec.stream, partitions, StreamSettings(config, stream.system).of(spec))
        if topics.get(spec.stream).partitions < partitions:
            topics.grow(spec.stream, partitions)
        self._partitions = topics.get(spec.stream).partitions
        self._partition_of = kafka_partitioner(Settings.of(config), stream)
        self._error: KafkaError | None = None
        self._producer: Producer | None = None

    def write(self, records: Sequence[Message]) -> None:
        """Append the records; all copies have them on return.

        Raises:
            StreamError: the brokers have not taken one: others may be there.
            StreamUnreachable: no answer in time; any of them may be there.
        """
        if self._producer is None:
            timeout = {"message.timeout.ms": round(self._connection.timeout_s * 1000)}
            self._producer = self._connection.new_sender(
                f"writing {self._stream}", {**_SETTINGS, **timeout}, _TUNABLE
            )
        self._error = None
        try:
            for record in records:
                self._produce(self._producer, record)
        except KafkaException as error:
            raise self._refused(reason_of(error)) from error
        deadline_s = self._clock.monotonic_s() + self._connection.timeout_s
        while self._producer.flush(_STEP_S) > 0 and self._clock.monotonic_s() < deadline_s:
            pass
        if len(self._producer) > 0:
            given_up, self._producer = self._producer, None
            given_up.purge()  # else they would come after what is written next
            given_up.flush(_STEP_S)  # and the word of them with its own
            raise StreamUnreachable(f"{self._stream}: brokers did not take the records in time")
        if self._error is not None:
            raise self._refused(self._error)

    def _produce(self, producer: Producer, record: Message) -> None:
        where = partition_for(self._stream.stream, record, self._partitions, self._partition_of)
        while True:
            try:
                producer.produce(
                    self._stream.stream,
                    record.value,
                    record.key,
                    where,
                    on_delivery=self._take,
                    timestamp=record.timestamp_ms,
                )
            except BufferError:  # more than the client holds: a part of it goes out first
                producer.poll(_STEP_S)
            else:
                return

    def _take(self, error: KafkaError | None, _: Delivered) -> None:
        self._error = self._error or error

    def _refused(self, reason: KafkaError) -> StreamError:
        kind = StreamUnreachable if is_temporary(reason) else StreamError
        return kind(f"{self._stream}: {describe(reason)}")

    def close(self) -> None:
        """Let go; what `write` has returned from is there."""
        self._producer = None
