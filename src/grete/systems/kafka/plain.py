"""A topic that is written without transactions, for what may be lost but must never be waited for: logs.

A transaction a second from each process would put a marker behind every few records, and a process that is killed
amid one would keep the readers of all the others waiting.
"""

from __future__ import annotations

from collections.abc import Sequence

from grete.clock import Clock
from grete.kafka.client import KafkaConnection
from grete.kafka.sender import PlainSender
from grete.kafka.settings import checkpoint_log_settings
from grete.kafka.topics import Topics
from grete.model.streams import StreamSpec
from grete.systems.base import Message, partition_for
from grete.systems.kafka.stream_settings import KafkaStreamSettings
from grete.systems.log_sink import LogStream
from grete.systems.partitioner import kafka_partitioner


class PlainTopic:
    """The topic, made when it is not there. Used by one thread."""

    def __init__(self, target: LogStream, clock: Clock) -> None:
        """It has `partitions` partitions at least on return.

        Raises:
            ConfigError: no brokers, or settings that only Java can use.
            LogError: no broker answers, or they do not let us in.
            StreamError: the topic cannot be made, grown or described.
        """
        settings, stream, partitions = target.settings, target.stream, target.partitions
        self._connection = KafkaConnection.of(checkpoint_log_settings(settings, stream.system), clock)
        self._connection.await_login(f"writing {stream}")
        self._stream = stream
        self._clock = clock
        topics = Topics(self._connection, stream.system, clock)
        spec = StreamSpec(stream.stream, partitions)
        if topics.find(spec.stream) is None:
            topics.create(spec.stream, partitions, KafkaStreamSettings(settings, stream.system).of(spec))
        if topics.get(spec.stream).partitions < partitions:
            topics.grow(spec.stream, partitions)
        self._partitions = topics.get(spec.stream).partitions
        self._partition_of = kafka_partitioner(settings, stream)
        self._sender = PlainSender(self._connection, stream.stream, str(stream), clock)

    def write(self, records: Sequence[Message]) -> None:
        """See LogSink.

        Raises:
            StreamError: the brokers have not taken one: others may be there.
            StreamUnreachable: no answer in time; any of them may be there.
        """
        name, count, choose = self._stream.stream, self._partitions, self._partition_of
        self._sender.send(
            (partition_for(name, one, count, choose), one.key, one.value, one.timestamp_ms, one.headers)
            for one in records
        )

    def close(self) -> None:
        """See LogSink."""
        self._sender.close()
        self._connection.close()
