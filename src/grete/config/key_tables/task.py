"""Keys of tasks: inputs and outputs, batches, commits and checkpoints, poison messages, metrics."""

from __future__ import annotations

from grete.config import aliases
from grete.config.choices import LostOffsets, PoisonAction
from grete.config.key import (
    BOOLEAN,
    BYTES,
    CHECKPOINT_VERSIONS,
    COUNT,
    DURATION,
    INTEGER,
    LIST,
    MILLISECONDS,
    NATURAL,
    PATH,
    TEXT,
    ChangeClass,
    Key,
    one_of,
)

_CONTAINER, _SET_ONCE, _LIVE = ChangeClass.RESTART_CONTAINER, ChangeClass.SET_ONCE, ChangeClass.LIVE
_QUERY = ChangeClass.RESTART_QUERY
_BATCH = "a commit waits for brokers that are away, and fails as a whole; see `task.commit.ms`"
_CP = "task.checkpoint"

INPUTS = Key("task.inputs", LIST, None, _QUERY, "Input streams, `system.stream` separated by commas.")
BROADCAST = Key(
    "task.broadcast.inputs",
    LIST,
    None,
    _QUERY,
    "Partitions every task reads: `system.stream#0` or `system.stream#[0-3]`, separated by commas. Nothing else of "
    "these streams is read, and tasks are made of `task.inputs` alone.",
)
OUTPUTS = Key(
    "task.outputs",
    LIST,
    None,
    _QUERY,
    "Output streams. The coordinator creates those that are not there, with as many partitions as the largest input. "
    "Of another system than the inputs' they are written at least once, before each commit.",
)
OUTPUTS_SUFFIX = Key(
    "task.outputs.suffix",
    TEXT,
    None,
    _QUERY,
    "What the names of streams end with that a job writes, dead letters excepted, and a pipeline's "
    "`outputs.NAME.path` and `.table`: a clone writes beside its original. `grete job clone` sets it, "
    "`grete job promote` removes it.",
)
INPUTS_ENDS = Key(
    "task.inputs.ends",
    LIST,
    None,
    _QUERY,
    "Where inputs end for a job that is run `--until-drained`, as `system.stream.partition=offset`: the first that "
    "it leaves. `grete job promote` sets it to bring two jobs to the same offsets; `on_end_of_stream` is not called.",
)
WINDOW = Key(
    "task.window.ms", MILLISECONDS, "-1", _QUERY, "How often `window()` is called; -1 is never.", unit="ms"
)
MAX_RECORDS = Key(
    "task.max.records.per.batch",
    COUNT,
    "200000",
    _QUERY,
    "Most input records of one commit of a share of StreamTasks, or of one batch of a DataFrame pipeline.",
    unit="records",
)
MAX_BYTES = Key(
    "task.max.bytes.per.batch",
    INTEGER,
    "268435456",
    _QUERY,
    "About how many bytes of input go into one commit of a share of StreamTasks, or on the embedded system into one "
    "batch of a DataFrame pipeline; 0 is no limit.",
    unit="bytes",
)
TRIGGER_INTERVAL = Key(
    "task.trigger.interval.ms",
    MILLISECONDS,
    "0",
    _QUERY,
    "Time between starts of batches of a DataFrame pipeline; 0 starts the next one at once. StreamTasks take it for "
    "`task.commit.ms` where that is not set.",
    unit="ms",
)
POLL_INTERVAL = Key(
    "task.poll.interval.ms",
    DURATION,
    "50",
    _QUERY,
    "Pause between looks at inputs without records.",
    unit="ms",
    no_effect="a share waits for its input",
)
SHUTDOWN = Key(
    "task.shutdown.ms", MILLISECONDS, "30000", _LIVE, "Time a container has to stop gracefully.", unit="ms"
)
POISON_POLICY = Key(
    "task.poison.policy",
    one_of(PoisonAction),
    "fail",
    _QUERY,
    "What happens with a message that cannot be processed: the container fails, or the message is put aside.",
)
DROP_DESERIALIZATION_ERRORS = Key(
    "task.drop.deserialization.errors",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether a message that its serdes cannot read is put aside; Samza drops it. Counts where `task.poison.policy` "
    "is not set.",
)
DROP_SERIALIZATION_ERRORS = Key(
    "task.drop.serialization.errors",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether a message is put aside for which the task sends what a serde cannot write; Samza drops what is sent. "
    "Counts where `task.poison.policy` is not set.",
)
IGNORED_EXCEPTIONS = Key(
    "task.ignored.exceptions",
    LIST,
    None,
    _QUERY,
    "Exceptions of `process` whose messages are put aside, by the names of their own Python classes; `*` is all. "
    "Samza drops them. Counts where `task.poison.policy` is not set.",
)
LOST_OFFSETS_POLICY = Key(
    "task.lost-offsets.policy",
    one_of(LostOffsets),
    "stop",
    _QUERY,
    "What happens when retention has removed messages that were not processed: the job stops and names them, or goes "
    "on at the oldest there is, and its history names what was skipped.",
)
DEAD_LETTERS = Key(
    "task.poison.dead-letter.stream",
    TEXT,
    None,
    _QUERY,
    "Where it is put, `system.stream`.",
    default_doc="`<job>-<id>-dead-letters` where Samza's keys put messages aside",
)
NAME_GROUPER = Key(
    "task.name.grouper.factory",
    TEXT,
    "org.apache.samza.container.grouper.task.GroupByContainerCountFactory",
    _CONTAINER,
    "How tasks become containers.",
    aliases=aliases.TASK_GROUPERS,
)
CHECKPOINT_FACTORY = Key(
    f"{_CP}.factory",
    TEXT,
    "grete.checkpoint.log",
    _CONTAINER,
    "Where checkpoints are kept. The log always has them; another store gets a copy after a commit and is read at "
    "the start. A change takes the checkpoints along.",
    aliases=aliases.CHECKPOINTS,
)
CHECKPOINT_SYSTEM = Key(
    f"{_CP}.system",
    TEXT,
    None,
    _SET_ONCE,
    "The system of the checkpoint log.",
    default_doc="`job.coordinator.system`",
)
CHECKPOINT_REPLICATION = Key(
    f"{_CP}.replication.factor", COUNT, "3", _SET_ONCE, "Copies of the log, where the system keeps copies."
)
CHECKPOINT_SEGMENT = Key(
    f"{_CP}.segment.bytes", BYTES, "26214400", _SET_ONCE, "Size of its segments.", unit="bytes"
)
CHECKPOINT_MESSAGE = Key(
    f"{_CP}.max.message.bytes", BYTES, "1000012", _SET_ONCE, "Largest record of it.", unit="bytes"
)
CHECKPOINT_PATH = Key(
    f"{_CP}.path",
    PATH,
    None,
    _CONTAINER,
    "The folder of checkpoints in files; it must exist. Needed by `grete.checkpoint.file-system`, without effect for "
    "the others.",
)
CONSUMER_GROUP = Key(
    f"{_CP}.consumer.group",
    TEXT,
    None,
    _QUERY,
    "On Kafka and Event Hubs: the consumer group to which the next offset of every input is committed as well, at "
    "most once a second, so that tools which show the lag of groups show the job's. Without it, it is "
    "`grete-NAME-ID` of the job's name and id on Kafka, and none on Event Hubs. grete never reads it: checkpoints "
    "are in the checkpoint log. The group has to be the job's own, and without members.",
)
WRITE_VERSIONS = Key(
    f"{_CP}.write.versions",
    CHECKPOINT_VERSIONS,
    "1,2",
    _QUERY,
    "Versions to write.",
    no_effect="both versions are written",
)
READ_VERSIONS = Key(
    f"{_CP}.read.versions",
    CHECKPOINT_VERSIONS,
    "1",
    _QUERY,
    "Versions to read, best first.",
    no_effect="version 1 is read",
)
LIVE_MAX_AGE = Key(
    "task.live.checkpoint.max.age",
    DURATION,
    "600000",
    _QUERY,
    "Age from which a checkpoint of another version wins.",
    unit="ms",
    no_effect="version 1 is read",
)
COMMIT = Key(
    "task.commit.ms",
    MILLISECONDS,
    "10",
    _QUERY,
    "Least time between two commits of a share of StreamTasks; -1 is never but when a task asks for it or a limit is "
    "reached. Outputs, state and checkpoints become visible together, so outputs wait for as long; those of Samza, "
    "whose default is a minute, do not. With a backlog commits are fewer.",
    unit="ms",
)
COMMIT_DELAY = Key(
    "task.commit.max.delay.ms", MILLISECONDS, "60000", _QUERY, "Patience.", unit="ms", no_effect=_BATCH
)
COMMIT_TIMEOUT = Key(
    "task.commit.timeout.ms", MILLISECONDS, "1800000", _QUERY, "Timeout.", unit="ms", no_effect=_BATCH
)
SKIP_COMMIT = Key(
    "task.commit.skip.commit.during.failures.enabled",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether failed commits are skipped.",
    no_effect=_BATCH,
)
SKIP_EXCEPTIONS = Key(
    "task.commit.skip.commit.exception.max.limit", NATURAL, "5", _QUERY, "How many.", no_effect=_BATCH
)
SKIP_TIMEOUTS = Key(
    "task.commit.skip.commit.timeout.max.limit", NATURAL, "2", _QUERY, "How many.", no_effect=_BATCH
)
COMMIT_GROUPS = Key(
    "task.commit.groups",
    COUNT,
    None,
    _CONTAINER,
    "On Kafka: at most so many transactions commit a container's batch, each by the executor that ran its tasks, and "
    "at most so many Spark tasks run at once.",
    default_doc="the cores that `spark.*` gives the container",
)
TRANSACTION_TIMEOUT = Key(
    "task.commit.transaction.timeout.ms",
    DURATION,
    "15000",
    _CONTAINER,
    "On Kafka: how long a transaction may take before the brokers abort it. An executor that stops in the middle of "
    "one holds readers of its outputs back for as long. That of a DataFrame pipeline's batch takes as long as its "
    "batch.",
    unit="ms",
    default_doc="15000, of a DataFrame pipeline's batches 900000",
)
MAX_CONCURRENCY = Key(
    "task.max.concurrency",
    COUNT,
    "1",
    _QUERY,
    "How many messages of an AsyncStreamTask are in progress at once. With more than 1 they may end in any order.",
)
CALLBACK_TIMEOUT = Key(
    "task.callback.timeout.ms",
    MILLISECONDS,
    "-1",
    _QUERY,
    "How long an AsyncStreamTask may take for a message; -1 is any time.",
    unit="ms",
)
PROFILE = Key(
    "task.profile.seconds",
    NATURAL,
    "0",
    _QUERY,
    "Each share of StreamTasks profiles its Python functions for so many seconds after the change, and its "
    "container's log gets those that took most. It makes tasks slower meanwhile; 0 is no profile.",
    unit="s",
)
OPTS = Key("task.opts", TEXT, None, _CONTAINER, "Samza's JVM options.", no_effect="use `spark.*`")

STATE_RESTORE = Key(
    "task.transactional.state.restore.enabled",
    BOOLEAN,
    "true",
    _CONTAINER,
    "Of a job that comes from Samza: whether its stores begin where Samza's checkpoints say, so that what Samza "
    "processed and did not commit counts once. `false` takes all that is in the changelogs.",
)
STATE_RETAIN = Key(
    "task.transactional.state.retain.existing.state",
    BOOLEAN,
    "true",
    _CONTAINER,
    "Of a job that comes from Samza: what becomes of a changelog of which Samza's checkpoint says nothing. `true` "
    "takes what is in it, `false` empties it.",
)

LOG_SYSTEM = Key(
    "task.log4j.system",
    TEXT,
    None,
    _CONTAINER,
    "An embedded system or a Kafka one: the job's log records are also written to its stream `__samza_NAME_ID_logs`, "
    "with the process's name as key. An embedded one with a file of its own (`systems.%s.path`) stays out of the "
    "job's way.",
)
LOG_LOCATION = Key(
    "task.log4j.location.info.enabled",
    BOOLEAN,
    "false",
    _CONTAINER,
    "Whether they say file, line and function.",
)
LOG_CREATE = Key(
    "task.log4j.create.stream.enabled",
    BOOLEAN,
    "false",
    _CONTAINER,
    "Whether Samza creates the stream.",
    no_effect="it is created",
)
DIAGNOSTICS_STREAM = Key(
    "metrics.reporter.diagnosticsreporter.stream",
    TEXT,
    None,
    _CONTAINER,
    "Where diagnostics go, `system.stream` of an embedded system or a Kafka one; see `job.diagnostics.enabled`.",
)
METRICS_REPORTERS = Key(
    "metrics.reporters",
    LIST,
    None,
    _CONTAINER,
    "Names of reporters, each with a `metrics.reporter.%s.class`. `/metrics` needs none.",
)
METRICS_CLASS = Key(
    "metrics.reporter.%s.class",
    TEXT,
    None,
    _CONTAINER,
    "`snapshot` writes the metrics of containers and tasks to a stream, as JSON. Samza's others have no effect.",
)
METRICS_STREAM = Key(
    "metrics.reporter.%s.stream",
    TEXT,
    None,
    _CONTAINER,
    "The stream of a reporter's snapshots, `system.stream` of an embedded system or a Kafka one.",
)
METRICS_INTERVAL = Key(
    "metrics.reporter.%s.interval", COUNT, "60", _CONTAINER, "How often a reporter writes.", unit="s"
)
METRICS_BLACKLIST = Key(
    "metrics.reporter.%s.blacklist",
    TEXT,
    None,
    _CONTAINER,
    "A Java regular expression: metrics whose `group.name` it matches are left out.",
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
