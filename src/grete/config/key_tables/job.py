"""Keys of the job as a whole: identity, application, containers, launching, the coordinator's HTTP server."""

from __future__ import annotations

from grete.config import aliases
from grete.config.choices import ApplicationMode, HttpAuthentication, LauncherChoice, LineageState
from grete.config.key import (
    BOOLEAN,
    CLASS,
    CONTAINERS,
    COPIES,
    DURATION,
    INTEGER,
    LIST,
    LOCATION,
    PATH,
    PORT,
    TEXT,
    ChangeClass,
    Key,
    bounded,
    one_of,
    one_of_or_plugin,
)

_CONTAINER, _SET_ONCE, _LIVE = ChangeClass.RESTART_CONTAINER, ChangeClass.SET_ONCE, ChangeClass.LIVE
_QUERY, _INTERNAL = ChangeClass.RESTART_QUERY, ChangeClass.INTERNAL
_JVM = "it sets up Samza's JVM processes"

JOB_NAME = Key("job.name", TEXT, None, _SET_ONCE, "The job's name: letters, digits and `._-`, at most 200.")
JOB_ID = Key(
    "job.id", TEXT, "1", _SET_ONCE, "Distinguishes several jobs of one name, each with its own state."
)
APP_CLASS = Key("app.class", CLASS, None, _QUERY, "A `grete.DataFramePipeline` as `module:Class`.")
TASK_CLASS = Key("task.class", CLASS, None, _QUERY, "A `grete.StreamTask` as `module:Class`.")
APP_NAME = Key(
    "app.name",
    TEXT,
    None,
    _SET_ONCE,
    "Samza's newer name of `job.name`, which is set to it; it wins where both are set, as in Samza.",
    default_doc="`job.name`",
)
APP_ID = Key(
    "app.id",
    TEXT,
    "1",
    _SET_ONCE,
    "Samza's newer name of `job.id`; likewise.",
    default_doc="`job.id`",
)
APP_MODE = Key(
    "app.mode",
    one_of(ApplicationMode),
    "STREAM",
    _CONTAINER,
    "Samza's mode.",
    no_effect="`grete run --until-drained` ends a job when its inputs are read",
)
APP_RUN_ID = Key(
    "app.run.id",
    TEXT,
    None,
    _INTERNAL,
    "One submit of the job.",
    default_doc="generated",
    no_effect="each submit makes its own",
)
APP_RUNNER = Key(
    "app.runner.class",
    TEXT,
    "org.apache.samza.runtime.RemoteApplicationRunner",
    _CONTAINER,
    "Samza's runner.",
    no_effect="`grete run` is the runner",
)
FACTORY = Key(
    "job.factory.class",
    TEXT,
    None,
    _CONTAINER,
    "Samza's job factory; names the launcher where `job.launcher` is not set.",
    aliases=aliases.LAUNCHERS,
)
LAUNCHER = Key(
    "job.launcher",
    one_of_or_plugin(LauncherChoice, aliases.LAUNCHERS),
    "process",
    _CONTAINER,
    "How containers are started: each in a process of its own, each by `spark-submit` in client mode on the "
    "coordinator's machine, as threads of the coordinator, each in a pod or an application of YARN of its own beside "
    "the coordinator's (`grete deploy` sets that with more than one container), or by the processors that joined "
    "the job (`grete.StreamProcessor` sets that).",
)
CONTAINER_COUNT = Key(
    "job.container.count",
    CONTAINERS,
    "1",
    _QUERY,
    "Containers, each a Spark application with one query. One scales out by Spark's executors. A change moves tasks: "
    "containers whose tasks differ pause and go on, the others do not notice.",
    renamed_from=("yarn.container.count",),
)
CONTAINER_IDS = Key(
    "job.container.ids",
    LIST,
    None,
    _QUERY,
    "The containers of a job of stream processors, one for each processor that lives. Its leader writes it; without "
    "it there is container 0 alone. Other jobs have containers 0 to `job.container.count` - 1.",
)
APPLICATION_PATH = Key(
    "job.application.path",
    PATH,
    None,
    _CONTAINER,
    "Folder of the application's Python modules; relative to the configuration file that names it. Containers work "
    "in it: relative paths that the application opens begin here. Executors of a cluster get it as an archive. "
    "Without it containers work in `work` in the job's folder below `job.state.dir`.",
)
STATE_DIR = Key(
    "job.state.dir",
    PATH,
    "${GRETE_HOME}/jobs",
    _CONTAINER,
    "Folder for lineages, store files, logs and the HTTP token.",
)
LINEAGE_STATE = Key(
    "job.lineage.state",
    one_of(LineageState),
    "keep",
    _QUERY,
    "Whether a DataFrame pipeline's Spark state may be given up when its lineage cannot go on.",
)
LINEAGE_DIR = Key(
    "job.lineage.dir",
    LOCATION,
    None,
    _CONTAINER,
    "Folder for the lineages of a DataFrame pipeline: Spark's checkpoints, with the state that it keeps. On a "
    "cluster a pipeline that keeps state needs one that all machines share, which is checked, or the address of a "
    "folder on a file system of Hadoop's (`hdfs://host/folder`, `s3a://bucket/folder`).",
    default_doc="`job.state.dir`",
)
HTTP_HOST = Key(
    "job.http.host",
    TEXT,
    "127.0.0.1",
    _CONTAINER,
    "Address of the coordinator's HTTP server. One that other machines reach is served over TLS, and needs "
    "`job.http.port`; this machine's commands and containers use a free port of the loopback then "
    "([from elsewhere](production.md#from-other-machines)).",
)
HTTP_NAMES = Key(
    "job.http.names",
    LIST,
    None,
    _CONTAINER,
    "Names and addresses by which other machines reach it: a request by another is refused. The first is printed.",
    default_doc="what the machine calls itself, and `job.http.host` or the machine's address",
)
HTTP_CERTIFICATE = Key(
    "job.http.certificate",
    PATH,
    None,
    _CONTAINER,
    "A PEM file of the certificate, with its chain. When it is replaced, the next connection has the new one.",
    default_doc="`http-certificate.pem` in the job's folder, made for the names and signed by nobody",
)
HTTP_CERTIFICATE_KEY = Key(
    "job.http.certificate.key",
    PATH,
    None,
    _CONTAINER,
    "A PEM file of the certificate's key, without a password.",
    default_doc="the file of the certificate",
)
HTTP_PORT = Key(
    "job.http.port",
    PORT,
    "0",
    _CONTAINER,
    "Port of the coordinator's HTTP server; 0 takes a free one.",
    renamed_from=("cluster-manager.jobcoordinator.url.port",),
)
HTTP_AUTH = Key(
    "job.http.auth",
    one_of(HttpAuthentication),
    "token",
    _CONTAINER,
    "Whether requests to the coordinator need its bearer token.",
)
HTTP_METRICS_TOKEN = Key(
    "job.http.metrics.token",
    TEXT,
    None,
    _CONTAINER,
    "The token of scrapers, which gives the metrics and nothing else: 20 characters or more, written `${env:NAME}`.",
    default_doc="a new one at each start, in the file `http-metrics-token`",
    is_secret=True,
)
TRACES_ENDPOINT = Key(
    "job.traces.endpoint",
    TEXT,
    None,
    _CONTAINER,
    "A receiver of OpenTelemetry's spans by OTLP over HTTP, as `http://collector:4318`; `/v1/traces` is added where "
    "no path is named. Without it nothing is traced.",
)
TRACES_HEADERS = Key(
    "job.traces.headers",
    TEXT,
    None,
    _CONTAINER,
    "Headers for the receiver, as `name=value` separated by commas; written `${env:NAME}` or `${file:PATH}`.",
    is_secret=True,
)
TRACES_PERCENT = Key(
    "job.traces.percent",
    bounded("a percentage", 0, 100),
    "100",
    _CONTAINER,
    "So many batches of a hundred are traced. What an operator does, and what the coordinator does, always is.",
)
DEFAULT_SYSTEM = Key(
    "job.default.system",
    TEXT,
    None,
    _CONTAINER,
    "The system meant where a stream is named without one.",
    default_doc="the only configured system; `local` when none is",
)
CHANGELOG_SYSTEM = Key(
    "job.changelog.system",
    TEXT,
    None,
    _SET_ONCE,
    "The system of changelogs that are named without one.",
    default_doc="`job.default.system`",
)
SSP_GROUPER = Key(
    "job.systemstreampartition.grouper.factory",
    TEXT,
    "org.apache.samza.container.grouper.stream.GroupByPartitionFactory",
    _SET_ONCE,
    "How SSPs become tasks, and with them which state belongs to which task.",
    aliases=aliases.SSP_GROUPERS,
)
SSP_EXPANSION = Key(
    "job.systemstreampartition.input.expansion.enabled",
    BOOLEAN,
    "true",
    _SET_ONCE,
    "Whether tasks of a stateful job keep their keys when an input gets more partitions.",
)
SSP_MAPPER = Key(
    "job.system.stream.partition.mapper.factory",
    TEXT,
    "org.apache.samza.container.grouper.stream.HashSystemStreamPartitionMapperFactory",
    _SET_ONCE,
    "How a partition that is new after an expansion finds the partition it came from.",
    no_effect="a key's partition is always found by hash",
)
SSP_MATCHER = Key(
    "job.systemstreampartition.matcher.class", TEXT, None, _SET_ONCE, "Which SSPs the job reads, by a rule."
)
SSP_MATCHER_REGEX = Key(
    "job.systemstreampartition.matcher.config.regex",
    TEXT,
    None,
    _SET_ONCE,
    "Partitions, as a regex.",
    no_effect="there are no matchers yet",
)
SSP_MATCHER_RANGES = Key(
    "job.systemstreampartition.matcher.config.ranges",
    TEXT,
    None,
    _SET_ONCE,
    "Partitions, as in `1-3,7`.",
    no_effect="there are no matchers yet",
)
SSP_MATCHER_JOB_FACTORY = Key(
    "job.systemstreampartition.matcher.config.job.factory.regex",
    TEXT,
    r"org\.apache\.samza\.job\.local(.*ProcessJobFactory|.*ThreadJobFactory)",
    _SET_ONCE,
    "The job factories under which the matcher applies.",
    no_effect="there are no matchers yet",
)
ELASTICITY = Key(
    "job.elasticity.factor",
    INTEGER,
    "1",
    _SET_ONCE,
    "So many tasks share each partition, each with its own keys; `grete job elasticity` changes it.",
)
REWRITERS = Key(
    "job.config.rewriters", LIST, None, _LIVE, "Rewriters, applied once, at submit, in this order."
)
REWRITER_CLASS = Key(
    "job.config.rewriter.%s.class",
    TEXT,
    None,
    _LIVE,
    "A rewriter: a name (`environment`, `regex-input`, an installed one) or `module:Class`.",
    aliases=aliases.REWRITERS,
)
REWRITER_REGEX = Key("job.config.rewriter.%s.regex", TEXT, None, _LIVE, "Which streams become inputs.")
REWRITER_SYSTEM = Key("job.config.rewriter.%s.system", TEXT, None, _LIVE, "The system they are looked up in.")
REWRITER_CONFIG = Key(
    "job.config.rewriter.%s.config.%s", TEXT, None, _LIVE, "Properties each of them gets.", is_open=True
)
CONFIG_LOADER = Key(
    "job.config.loader.factory",
    TEXT,
    None,
    _LIVE,
    "Samza's config loader.",
    no_effect="`grete run --config FILE` loads .properties, YAML and TOML",
)
CONFIG_LOADER_PROPERTIES = Key(
    "job.config.loader.properties.%s",
    TEXT,
    None,
    _LIVE,
    "Its properties.",
    is_open=True,
    no_effect="see there",
)
HOST_AFFINITY = Key(
    "job.host-affinity.enabled",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether tasks stay in their containers when the number of these changes; with GroupByContainerIds, in those of "
    "the host that they were on. With or without it, tasks begin again on machines that have their stores. Where "
    "containers are pods, each begins again on its last host, if that has room.",
    renamed_from=("yarn.samza.host-affinity.enabled",),
)
STANDBY = Key(
    "job.standbytasks.replication.factor",
    COPIES,
    "1",
    _CONTAINER,
    "Copies of a task's state; 1 is none but its own. For each further one every container gets a standby "
    "container, which follows the changelogs and keeps copies of the store files.",
)
STANDBY_DIR = Key(
    "job.standbytasks.state.dir",
    PATH,
    None,
    _CONTAINER,
    "Folder of those copies: on another disk, so that they survive the first one.",
    default_doc="`job.state.dir`",
)
SNAPSHOT_DIR = Key(
    "job.snapshot.dir",
    LOCATION,
    None,
    _CONTAINER,
    "Folder that all machines see, or a place in an object store (`s3://`, `gs://`, `abfs://`) or in HDFS "
    "(`webhdfs://`), for snapshots of stores. A store that is not on its machine, or is damaged, is "
    "restored from the newest one, and reads only the rest from its changelog.",
    default_doc="no snapshots",
)
SNAPSHOT_INTERVAL = Key(
    "job.snapshot.interval.ms",
    bounded("milliseconds, at least 1000", 1000, 10**11),
    "600000",
    _CONTAINER,
    "How often a snapshot of each store is taken. Blocks that have not changed are not written again.",
    unit="ms",
)
SUCCEEDED_BY = Key(
    "job.succeeded.by",
    TEXT,
    None,
    _CONTAINER,
    "The job that goes on where this one ended, by `grete job promote`. This one is not run any more, since both "
    "would write the same streams.",
)
PROMOTED_OVER = Key(
    "job.promoted.over",
    TEXT,
    None,
    _CONTAINER,
    "The job whose streams this one writes, by `grete job promote`. It stays when a file that leaves it out is "
    "submitted, and with it the streams, whatever `task.outputs.suffix` the file has.",
)
STARTPOINTS = Key("job.startpoint.enabled", BOOLEAN, "true", _CONTAINER, "Whether startpoints are obeyed.")
CHECKPOINT_VALIDATION = Key(
    "job.checkpoint.validation.enabled",
    BOOLEAN,
    "true",
    _CONTAINER,
    "Whether a checkpoint log of more than one partition is refused.",
    no_effect="a checkpoint log always has one partition",
)
DRAIN_MONITOR = Key(
    "job.drain-monitor.enabled",
    BOOLEAN,
    "false",
    _CONTAINER,
    "Whether drains are watched for.",
    no_effect="the coordinator is asked to drain by `grete drain`",
)
DRAIN_POLL = Key(
    "job.drain-monitor.poll.interval.ms",
    DURATION,
    "60000",
    _CONTAINER,
    "How often.",
    unit="ms",
    no_effect="the coordinator is asked to drain by `grete drain`",
)
HEARTBEAT_MONITOR = Key(
    "job.container.heartbeat.monitor.enabled",
    BOOLEAN,
    "true",
    _CONTAINER,
    "Whether a container notices that its coordinator is gone.",
)
DIAGNOSTICS = Key(
    "job.diagnostics.enabled",
    BOOLEAN,
    "false",
    _CONTAINER,
    "Whether exceptions, container exits and starts are written to `metrics.reporter.diagnosticsreporter.stream`.",
)
JMX = Key(
    "job.jmx.enabled",
    BOOLEAN,
    "true",
    _CONTAINER,
    "Samza's JMX server.",
    renamed_from=("cluster-manager.jobcoordinator.jmx.enabled", "yarn.am.jmx.enabled"),
    no_effect="metrics are served over HTTP at `/metrics`",
)
LOGGED_STORES = Key(
    "job.logged.store.base.dir", TEXT, None, _CONTAINER, "Store files.", no_effect="see `job.state.dir`"
)
NON_LOGGED_STORES = Key(
    "job.non-logged.store.base.dir", TEXT, None, _CONTAINER, "Store files.", no_effect="see `job.state.dir`"
)
SPLIT_DEPLOYMENT = Key(
    "job.split.deployment.enabled",
    BOOLEAN,
    "false",
    _CONTAINER,
    "Whether a StreamTask runs, and a DataFrame pipeline builds its plan, in a process of its own, which has "
    "`job.application.environment` and nothing of the framework's but `grete.api`.",
    renamed_from=("samza.cluster.based.job.coordinator.dependency.isolation.enabled",),
)
APPLICATION_ENVIRONMENT = Key(
    "job.application.environment",
    PATH,
    None,
    _CONTAINER,
    "Folder of the application's own Python environment, whose interpreter is `bin/python`; for "
    "`job.split.deployment.enabled=true`. It needs no package for grete, for a pipeline `pyspark-client`. One that "
    "`grete package build application` made is brought to executors on other machines; any other, as of "
    "`python -m venv`, has to be there.",
    default_doc="the interpreter of the framework",
)
PROCESSOR_ID = Key("processor.id", TEXT, None, _CONTAINER, "This processor's id, in embedded mode.")
PROCESSOR_ADDRESS = Key(
    "processor.address",
    TEXT,
    None,
    _CONTAINER,
    "Address or name at which the job's processors on other machines reach this one, in embedded mode. Each "
    "names its own.",
    default_doc="all processors are on this machine",
)
PROCESSOR_LIST = Key(
    "processor.list", LIST, None, _SET_ONCE, "Every processor's id, for the single-task grouper."
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
