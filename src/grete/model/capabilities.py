"""Capabilities of a kind of system, and its parts. Code asks for a capability, never for a system's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The differences between systems that other packages have to know.

    `has_gaps`: offsets of a partition are left out though no record was removed, as by marks of transactions.
    `is_embedded`: it is files in a folder of this machine, so opening it costs next to nothing, a reader needs no
    connection, and the files may be put back to an older state.
    `remembers_origins`: `PartitionOffsets.origin` is known of partitions that were added.
    `keeps_state`: it has transactions and compacted streams, for checkpoints, changelogs and fences. Without, the
    system that `task.checkpoint.system` names has them.
    `consumer_groups`: `System.group_offsets` can show how far a job has come.
    `kafka_topics`: its streams are topics that the clients of Kafka read too: Samza's, Spark's connector, tools.
    `spark_connector`: Spark's connector to Kafka reads and writes its streams: they are topics, or behave as such.
    `configured_by_streams`: to reach a stream, its clients need keys of the stream (`streams.*`).
    """

    has_gaps: bool = False
    is_embedded: bool = False
    remembers_origins: bool = False
    keeps_state: bool = True
    consumer_groups: bool = False
    kafka_topics: bool = False
    spark_connector: bool = False
    configured_by_streams: bool = False


@dataclass(frozen=True, slots=True)
class SystemType:
    """A kind of system, as an entry point of the group `grete.systems` names it. Loading it loads no client library.

    The others are functions, `module:function`, imported when they are called. `opens` makes a System of a
    SystemContext. `coordinator_log` makes a KeyedLog of a LogContext, None where a coordinator stream cannot live.
    `log_sink` makes a LogSink of a LogStream and a clock, None where logs and diagnostics cannot go. `coordination`
    is the election that goes with a coordinator stream on such a system, by its name in `grete.coordination`.
    """

    opens: str
    capabilities: Capabilities
    coordinator_log: str | None = None
    log_sink: str | None = None
    coordination: str | None = None
