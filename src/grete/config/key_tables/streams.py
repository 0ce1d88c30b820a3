"""Keys of systems, streams, stores and serdes, and what is passed through to Spark."""

from __future__ import annotations

from grete.config import aliases
from grete.config.choices import OffsetDefault, PartitionerChoice, PipelineColumns, PipelineDelivery
from grete.config.key import BOOLEAN, COUNT, INTEGER, LIST, MILLISECONDS, PATH, TEXT, ChangeClass, Key, one_of

_CONTAINER, _SET_ONCE, _LIVE = ChangeClass.RESTART_CONTAINER, ChangeClass.SET_ONCE, ChangeClass.LIVE
_QUERY = ChangeClass.RESTART_QUERY
_OFFSET = one_of(OffsetDefault)
_LEGACY = "systems.%s.streams.%s"
_DEFAULTS = "systems.%s.default.stream"

SYSTEM_FACTORY = Key(
    "systems.%s.samza.factory",
    TEXT,
    None,
    _SET_ONCE,
    "The kind of system; `local` is the embedded one.",
    aliases=aliases.SYSTEMS,
)
SYSTEM_PATH = Key("systems.%s.path", PATH, "${GRETE_HOME}/local", _SET_ONCE, "The embedded system's folder.")
CONNECTOR_JARS = Key(
    "systems.%s.connector.jars",
    PATH,
    None,
    _CONTAINER,
    "A folder with the jars of Spark's Kafka connector, of Spark's version, for machines that cannot fetch them.",
    default_doc="`GRETE_SPARK_KAFKA_JARS`, else Spark fetches them (`spark.jars.packages`)",
)
PIPELINE_HEADERS = Key(
    "systems.%s.pipeline.headers",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether the inputs of a DataFrame pipeline on Kafka have the column `headers`.",
)
PIPELINE_DELIVERY = Key(
    "systems.%s.pipeline.delivery",
    one_of(PipelineDelivery),
    "auto",
    _QUERY,
    "How a DataFrame pipeline's rows get to Kafka. `transactions`: each batch in one transaction with its "
    "checkpoints, so that readers of what is committed get each row once. `stamps`: each record says which batch it "
    "is of, and a `CommittedReader` gets each once. `plain`: at least once. `auto` is transactions where the "
    "checkpoints are in this system, else stamps.",
)
SYSTEM_OFFSET = Key(
    "systems.%s.samza.offset.default",
    _OFFSET,
    "upcoming",
    _LIVE,
    "Where to start streams of the system that have no checkpoint.",
    spellings=(f"{_DEFAULTS}.samza.offset.default",),
)
SYSTEM_KEY_SERDE = Key(
    "systems.%s.samza.key.serde",
    TEXT,
    "bytes",
    _QUERY,
    "Serde of keys of the system's streams.",
    spellings=(f"{_DEFAULTS}.samza.key.serde",),
)
SYSTEM_MSG_SERDE = Key(
    "systems.%s.samza.msg.serde",
    TEXT,
    "bytes",
    _QUERY,
    "Serde of messages of the system's streams.",
    spellings=(f"{_DEFAULTS}.samza.msg.serde",),
)
SYSTEM_STREAM_DEFAULTS = Key(
    f"{_DEFAULTS}.%s", TEXT, None, _QUERY, "Any stream property, for all streams of the system.", is_open=True
)

STREAM_SYSTEM = Key(
    "streams.%s.samza.system",
    TEXT,
    None,
    _SET_ONCE,
    "The stream's system.",
    default_doc="`job.default.system`",
)
STREAM_NAME = Key(
    "streams.%s.samza.physical.name",
    TEXT,
    None,
    _SET_ONCE,
    "The stream's name in its system.",
    default_doc="the stream id",
)
STREAM_OFFSET = Key(
    "streams.%s.samza.offset.default",
    _OFFSET,
    None,
    _LIVE,
    "Where to start without a checkpoint.",
    spellings=(f"{_LEGACY}.samza.offset.default",),
    default_doc="the system's",
)
STREAM_RESET = Key(
    "streams.%s.samza.reset.offset",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether to ignore the stream's checkpoint at every start.",
    spellings=(f"{_LEGACY}.samza.reset.offset", f"{_DEFAULTS}.samza.reset.offset"),
)
STREAM_BOOTSTRAP = Key(
    "streams.%s.samza.bootstrap",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether to read this stream to its end before the others.",
    spellings=(f"{_LEGACY}.samza.bootstrap", f"{_DEFAULTS}.samza.bootstrap"),
)
STREAM_KEY_SERDE = Key(
    "streams.%s.samza.key.serde",
    TEXT,
    None,
    _QUERY,
    "Serde of the stream's keys.",
    spellings=(f"{_LEGACY}.samza.key.serde",),
    default_doc="the system's",
)
STREAM_PARTITIONER = Key(
    "streams.%s.samza.partitioner",
    one_of(PartitionerChoice),
    "samza",
    _QUERY,
    "What chooses the partition of a key that a task sends to Kafka: Samza's `hashCode` of strings, integers and "
    "longs, or Kafka's own murmur2. Keys of other kinds always go by murmur2.",
    spellings=(f"{_LEGACY}.samza.partitioner", f"{_DEFAULTS}.samza.partitioner"),
)
STREAM_MSG_SERDE = Key(
    "streams.%s.samza.msg.serde",
    TEXT,
    None,
    _QUERY,
    "Serde of the stream's messages.",
    spellings=(f"{_LEGACY}.samza.msg.serde",),
    default_doc="the system's",
)
STREAM_COLUMNS = Key(
    "streams.%s.pipeline.columns",
    one_of(PipelineColumns),
    "raw",
    _QUERY,
    "Whether a DataFrame pipeline has keys and values of the stream as bytes, or `decoded`: as the stream's serdes "
    "read them, and for an output as they write them.",
    spellings=(f"{_LEGACY}.pipeline.columns", f"{_DEFAULTS}.pipeline.columns"),
)
STREAM_PARTITIONS = Key(
    "streams.%s.samza.partitions",
    COUNT,
    None,
    _QUERY,
    "Partitions of an output stream that is created.",
    spellings=(f"{_LEGACY}.samza.partitions", f"{_DEFAULTS}.samza.partitions"),
    default_doc="the most that an input has",
)
STREAM_PRIORITY = Key(
    "streams.%s.samza.priority",
    INTEGER,
    "-1",
    _QUERY,
    "Samza's priority.",
    spellings=(f"{_LEGACY}.samza.priority",),
    no_effect="a batch reads all inputs; see `bootstrap`",
)
STREAM_RETENTION_MS = Key(
    "streams.%s.retention.ms",
    MILLISECONDS,
    "-1",
    _CONTAINER,
    "How long the embedded system keeps records of the stream; -1 for ever. A slower reader loses them.",
    spellings=(f"{_LEGACY}.retention.ms", f"{_DEFAULTS}.retention.ms"),
)
STREAM_RETENTION_BYTES = Key(
    "streams.%s.retention.bytes",
    INTEGER,
    "-1",
    _CONTAINER,
    "How much the embedded system keeps of each partition; -1 everything.",
    spellings=(f"{_LEGACY}.retention.bytes", f"{_DEFAULTS}.retention.bytes"),
)
STREAM_OTHER = Key(
    "streams.%s.%s", TEXT, None, _QUERY, "Properties of the stream in its system.", is_open=True
)
SYSTEM_OTHER = Key(
    "systems.%s.%s",
    TEXT,
    None,
    _QUERY,
    "`consumer.` and `producer.`: settings of Samza's Kafka clients. How to reach brokers and what tunes a client "
    "is followed; what is not is named at a submit. See kafka.md.",
    is_open=True,
)

STORE_FACTORY = Key(
    "stores.%s.factory",
    TEXT,
    "grete.store.sqlite",
    _SET_ONCE,
    "Declares a store of every task.",
    aliases=aliases.STORES,
)
STORE_CHANGELOG = Key(
    "stores.%s.changelog",
    TEXT,
    None,
    _SET_ONCE,
    "The store's changelog, `stream` or `system.stream`.",
    default_doc="`<job>-<id>-<store>-changelog`",
)
STORE_KEY_SERDE = Key("stores.%s.key.serde", TEXT, "string", _SET_ONCE, "Serde of the store's keys.")
STORE_MSG_SERDE = Key("stores.%s.msg.serde", TEXT, "json", _SET_ONCE, "Serde of the store's values.")
STORE_CHANGELOG_REPLICATION = Key(
    "stores.%s.changelog.replication.factor",
    COUNT,
    None,
    _SET_ONCE,
    "Copies of the changelog, where the system keeps copies.",
    default_doc="`stores.default.changelog.replication.factor`, then "
    "`systems.SYSTEM.default.stream.replication.factor`, then 3",
)
STORE_COMPACTION_LAG = Key(
    "stores.%s.changelog.min.compaction.lag.ms",
    MILLISECONDS,
    "14400000",
    _CONTAINER,
    "How long every change of a store stays in its changelog, so that the store can be brought back to any moment.",
    default_doc="`stores.default.changelog.min.compaction.lag.ms`, else four hours",
)
STORE_CHANGELOG_OTHER = Key(
    "stores.%s.changelog.%s", TEXT, None, _CONTAINER, "Properties of the changelog stream.", is_open=True
)
STORE_TTL = Key(
    "stores.%s.rocksdb.ttl.ms",
    MILLISECONDS,
    None,
    _CONTAINER,
    "The age at which an entry expires, counted from its last put: it is not returned any more, and goes from the "
    "store's file and from its changelog. 0 or -1 lets entries stay.",
    default_doc="entries stay until the task deletes them",
    unit="ms",
)
STORE_SIDE_INPUTS = Key(
    "stores.%s.side.inputs",
    LIST,
    None,
    _QUERY,
    "Streams that fill the store, `system.stream` separated by commas. They are inputs of the job that begin at the "
    "oldest message and are read to their end before others; their messages do not come to `process`, and the task "
    "only reads the store.",
    default_doc="`process` fills it",
)
STORE_SIDE_INPUTS_PROCESSOR = Key(
    "stores.%s.side.inputs.processor.factory",
    TEXT,
    None,
    _QUERY,
    "The grete.SideInputsProcessor that makes entries of a side input's message, as `module:Class`.",
    default_doc="the message under its key",
)
STORE_BACKUP = Key(
    "stores.%s.factories", TEXT, None, _CONTAINER, "Samza's state back ends.", no_effect="changelogs only"
)
STORE_ENGINE = Key(
    "stores.%s.rocksdb.%s",
    TEXT,
    None,
    _CONTAINER,
    "RocksDB.",
    is_open=True,
    no_effect="stores are SQLite files",
)
STORE_CACHE = Key(
    "stores.%s.object.cache.size",
    INTEGER,
    "1000",
    _CONTAINER,
    "Samza's cache.",
    no_effect="changes of a batch are in memory",
)
STORE_WRITE_BATCH = Key(
    "stores.%s.write.batch.size",
    INTEGER,
    "500",
    _CONTAINER,
    "Samza's batch.",
    no_effect="changes of a batch are in memory",
)

SPARK_MASTER = Key("spark.master", TEXT, "local[*]", _CONTAINER, "Where executors run; no reference.")
SPARK_TIME_ZONE = Key(
    "spark.sql.session.timeZone",
    TEXT,
    None,
    _CONTAINER,
    "The time zone in which a pipeline reads and writes dates and times as text. The first submit writes it down, "
    "and it stays; a job of an earlier version has UTC.",
    default_doc="Spark's where the job is first submitted",
)
SPARK_OTHER = Key(
    "spark.%s", TEXT, None, _CONTAINER, "Passed on to Spark, references resolved.", is_open=True
)
SENSITIVE = Key(
    "sensitive.%s",
    TEXT,
    None,
    _CONTAINER,
    "Samza's prefix for values that are never shown.",
    is_secret=True,
    is_open=True,
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
