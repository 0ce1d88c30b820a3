"""Words that a configuration chooses from: keys of these types are read into them, in lower or upper case."""

from __future__ import annotations

from enum import StrEnum


class OffsetDefault(StrEnum):
    """Where a stream without a checkpoint starts (S2-89)."""

    OLDEST = "oldest"
    NEWEST = "newest"
    UPCOMING = "upcoming"


class PartitionerChoice(StrEnum):
    """How the partition of a key that is sent to Kafka is computed."""

    SAMZA = "samza"
    """Java's `hashCode` of strings, integers and longs."""
    KAFKA = "kafka"
    """murmur2 of the serialized key."""


class PoisonAction(StrEnum):
    """The treatment of a message that cannot be processed."""

    FAIL = "fail"
    DEAD_LETTER = "dead-letter"


class LostOffsets(StrEnum):
    """The treatment of offsets that retention removed before they were processed."""

    STOP = "stop"
    SKIP = "skip"


class ApplicationMode(StrEnum):
    """Samza's mode of an application; it has no effect here."""

    STREAM = "STREAM"
    BATCH = "BATCH"


class SizingPolicy(StrEnum):
    """Who decides how many containers a job has, while autosizing is on."""

    OUTSIDE = "outside"
    LAG = "lag"


class LauncherChoice(StrEnum):
    """How containers are started."""

    PROCESS = "process"
    SPARK_SUBMIT = "spark_submit"
    THREAD = "thread"
    KUBERNETES = "kubernetes"
    """Each in a pod of its own, beside that of a coordinator which was deployed."""
    YARN = "yarn"
    """Each an application of its own, beside that of a coordinator which was deployed."""
    PROCESSORS = "processors"
    """In processes that joined the job; `grete.StreamProcessor` sets it."""


class LineageState(StrEnum):
    """The treatment of a DataFrame pipeline's Spark state when its lineage cannot go on."""

    KEEP = "keep"
    DISCARD = "discard"


class PipelineColumns(StrEnum):
    """The form in which a DataFrame pipeline has the keys and values of a stream."""

    RAW = "raw"
    """Bytes."""
    DECODED = "decoded"
    """As the stream's serdes read and write them."""


class PipelineDelivery(StrEnum):
    """How the rows of a DataFrame pipeline get into a topic."""

    AUTO = "auto"
    """In transactions in the system of the checkpoints, else with stamps."""
    TRANSACTIONS = "transactions"
    """Each batch in one transaction with its checkpoints."""
    STAMPS = "stamps"
    """Each record says which batch it is of, so that a `CommittedReader` gets it once."""
    PLAIN = "plain"
    """At least once."""


class HttpAuthentication(StrEnum):
    """The credentials of requests to the coordinator."""

    TOKEN = "token"  # noqa: S105 - a choice, no secret
    NONE = "none"


class HubPartitioning(StrEnum):
    """How the partition of a record that is sent to Event Hubs is chosen."""

    HASHING = "EVENT_HUB_HASHING"
    ROUND_ROBIN = "ROUND_ROBIN"
    KEY_IS_PARTITION = "PARTITION_KEY_AS_PARTITION"


class Compression(StrEnum):
    """Codecs of Kafka's producers."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class SaslMechanism(StrEnum):
    """How a user gets in at ZooKeeper by SASL."""

    DIGEST_MD5 = "DIGEST-MD5"
    GSSAPI = "GSSAPI"


class ResourceType(StrEnum):
    """What YARN makes of a resource in each working folder. Spark has no word for Samza's third type, PATTERN."""

    FILE = "FILE"
    ARCHIVE = "ARCHIVE"
    """It is unpacked."""


class ResourceVisibility(StrEnum):
    """Who shares the copy of a resource on a node; Spark decides by who may read it."""

    PUBLIC = "PUBLIC"
    PRIVATE = "PRIVATE"
    APPLICATION = "APPLICATION"
