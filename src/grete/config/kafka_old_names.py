"""Names that Kafka's clients before 0.9 gave their settings, and that librdkafka still takes.

Samza 0.7 and 0.8 passed them to those clients. The Java clients of today know none of them, and Samza 1.x warns and
goes on. Each is given here with today's name; `grete migrate samza` writes that, and warnings name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

SERVERS = "bootstrap.servers"
TODAYS: Mapping[str, str] = {
    "metadata.broker.list": SERVERS,
    "broker.list": SERVERS,
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "num.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "queue.time": "linger.ms",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.size": "buffer.memory",
    "queue.enqueue.timeout.ms": "max.block.ms",
    "queue.enqueueTimeout.ms": "max.block.ms",
    "batch.num.messages": "batch.size",
    "max.message.size": "max.request.size",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "buffer.size": "send.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.buffersize": "receive.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.size": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "refresh.leader.backoff.ms": "retry.backoff.ms",
    "auto.commit.enable": "enable.auto.commit",
    "autocommit.enable": "enable.auto.commit",
    "autooffset.reset": "auto.offset.reset",
    "groupid": "group.id",
}
"""Old name -> today's."""
_CODECS = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4"}


def todays_value(name: str, value: str) -> str:
    """The value of an old name as today's name takes it."""
    if name == "compression.codec":
        return _CODECS.get(value.strip(), value)
    if name == "broker.list":  # 0.7: the broker's id, its host and its port
        return ",".join(_address(one) for one in value.split(","))
    return value


def _address(broker: str) -> str:
    parts = broker.strip().split(":")
    return ":".join(parts[1:]) if len(parts) == 3 else broker.strip()


def old_names_of(names: Mapping[str, object], todays: str) -> Iterator[str]:
    """Those of `names` that are old names of today's."""
    return (old for old, new in TODAYS.items() if new == todays and old in names)
