"""Keys of the coordinator: its stream, leadership, monitors, and how failed containers are retried."""

from __future__ import annotations

from grete.config import aliases
from grete.config.choices import ResourceType, ResourceVisibility
from grete.config.key import (
    BOOLEAN,
    BYTES,
    COUNT,
    DURATION,
    INTEGER,
    LEASE,
    MILLISECONDS,
    NATURAL,
    TEXT,
    ChangeClass,
    Key,
    one_of,
)

_CONTAINER, _SET_ONCE, _LIVE = ChangeClass.RESTART_CONTAINER, ChangeClass.SET_ONCE, ChangeClass.LIVE
_JVM = "it sets up Samza's JVM processes"
_CLUSTER = "Spark asks the cluster manager; use `spark.*`"
_CM = "cluster-manager.container"

SYSTEM = Key(
    "job.coordinator.system",
    TEXT,
    None,
    _SET_ONCE,
    "The system that holds the coordinator stream.",
    default_doc="`job.default.system`, else the only configured system, else `local`",
)
REPLICATION = Key(
    "job.coordinator.replication.factor",
    COUNT,
    "3",
    _SET_ONCE,
    "Copies of the coordinator stream, where the system keeps copies.",
    fallbacks=("task.checkpoint.replication.factor",),
)
SEGMENT_BYTES = Key(
    "job.coordinator.segment.bytes",
    BYTES,
    "26214400",
    _SET_ONCE,
    "Size of its segments, where the system has segments.",
    unit="bytes",
    fallbacks=("task.checkpoint.segment.bytes",),
)
MAX_MESSAGE_BYTES = Key(
    "job.coordinator.max.message.bytes", BYTES, "1000012", _SET_ONCE, "Largest record of it.", unit="bytes"
)
FACTORY = Key(
    "job.coordinator.factory",
    TEXT,
    None,
    _SET_ONCE,
    "Leader election: `sqlite`, `kafka`, `zookeeper`, `kubernetes` or `azure`.",
    default_doc="what goes with the coordinator stream",
    aliases=aliases.COORDINATION,
)
LEASE_TTL = Key(
    "job.coordinator.lease.ttl.ms",
    LEASE,
    "15000",
    _CONTAINER,
    "A leader that is silent so long can be succeeded. It renews at a third of it.",
    unit="ms",
)
STREAM_FACTORY = Key(
    "job.coordinatorstream.config.factory",
    TEXT,
    "org.apache.samza.util.DefaultCoordinatorStreamConfigFactory",
    _CONTAINER,
    "Which configuration a container gets through its environment.",
    no_effect="it is always the job's name and id and the coordinator system's configuration",
)
METADATA_STORE = Key(
    "metadata.store.factory",
    TEXT,
    "org.apache.samza.coordinator.metadatastore.CoordinatorStreamMetadataStoreFactory",
    _SET_ONCE,
    "Where metadata is kept.",
    no_effect="it is always the coordinator stream",
)
STARTPOINT_STORE = Key(
    "startpoint.metadata.store.factory",
    TEXT,
    None,
    _SET_ONCE,
    "Where startpoints are kept.",
    no_effect="it is always the coordinator stream",
)
LOCATION_PROVIDER = Key(
    "locationid.provider.factory",
    TEXT,
    "org.apache.samza.coordinator.DefaultLocationIdProviderFactory",
    _CONTAINER,
    "Where a processor runs.",
    no_effect="the host name is taken",
)
EXECUTE = Key("job.coordinator.execute", TEXT, "bin/run-jc.sh", _CONTAINER, "Samza's script.", no_effect=_JVM)
MONITOR_PARTITIONS = Key(
    "job.coordinator.monitor-partition-change",
    BOOLEAN,
    None,
    _LIVE,
    "A switch that Samza declares and never reads.",
    no_effect="Samza ignores it as well; use the frequency below",
)
MONITOR_PARTITIONS_MS = Key(
    "job.coordinator.monitor-partition-change.frequency.ms",
    INTEGER,
    "300000",
    _LIVE,
    "How often partition counts of the inputs are looked at; 0 and less is never.",
    unit="ms",
)
MONITOR_REGEX_MS = Key(
    "job.coordinator.monitor-input-regex.frequency.ms",
    INTEGER,
    "300000",
    _LIVE,
    "How often new streams are looked for that match an input regex; 0 and less is never.",
    unit="ms",
)
MONITOR_LAG_MS = Key(
    "job.coordinator.monitor-lag.frequency.ms",
    INTEGER,
    "10000",
    _LIVE,
    "How often the lag is measured; 0 and less is never.",
    unit="ms",
)
MONITOR_CONTAINER_SILENT_MS = Key(
    "job.coordinator.monitor-container.silent.ms",
    INTEGER,
    "60000",
    _LIVE,
    "A container without a heartbeat for so long is silent; 0 and less looks at none. It counts from when a cluster "
    "manager has begun the container.",
    unit="ms",
)
MONITOR_QUERY_STUCK_MS = Key(
    "job.coordinator.monitor-query.stuck.ms",
    INTEGER,
    "600000",
    _LIVE,
    "A query with lag that ends no batch for so long is stuck; longer than the longest batch; 0 and less looks at "
    "none.",
    unit="ms",
)
RESTART_SIGNAL = Key(
    "job.coordinator.restart.signal.factory",
    TEXT,
    "org.apache.samza.coordinator.NoOpJobRestartSignalFactory",
    _CONTAINER,
    "Samza's restart signal.",
    no_effect="the coordinator restarts what a change touches",
)
ZK_CONSENSUS = Key(
    "job.coordinator.zk.consensus.timeout.ms",
    DURATION,
    "40000",
    _CONTAINER,
    "Time in which processors agree on a job model.",
    unit="ms",
    no_effect="containers do not vote on a job model: they take it from their coordinator",
)
ZK_ACTIVE_MODEL = Key(
    "job.coordinator.zk.enable-startup-with-active-job-model",
    BOOLEAN,
    "false",
    _CONTAINER,
    "Samza's start with the last job model.",
    no_effect="a new leader always adopts running containers of an unchanged model",
)
DEBOUNCE = Key(
    "job.debounce.time.ms",
    DURATION,
    "20000",
    _LIVE,
    "Quiet time after processors come and go before the job model is recalculated.",
    unit="ms",
)
RETRY_COUNT = Key(
    f"{_CM}.retry.count",
    INTEGER,
    "8",
    _LIVE,
    "Failures of a container after which it is given up with the next; -1 retries for ever.",
    renamed_from=("yarn.container.retry.count",),
)
RETRY_WINDOW = Key(
    f"{_CM}.retry.window.ms",
    NATURAL,
    "300000",
    _LIVE,
    "A container that ran for so long before it failed has its failures counted from zero.",
    unit="ms",
    renamed_from=("yarn.container.retry.window.ms",),
)
LONGEST_PAUSE = Key(
    f"{_CM}.retry.longest-pause.ms",
    NATURAL,
    "60000",
    _LIVE,
    "A container that fails without a commit is started again after 1, 2, 4 s, and so on up to this.",
    unit="ms",
)
FAIL_JOB = Key(
    f"{_CM}.fail.job.after.retries",
    BOOLEAN,
    "true",
    _LIVE,
    "Whether the job fails with a container that is given up.",
)
MEMORY = Key(
    f"{_CM}.memory.mb",
    COUNT,
    None,
    _CONTAINER,
    "Memory of an executor where the master is a cluster, unless `spark.executor.memory` is set.",
    unit="MB",
    renamed_from=("yarn.container.memory.mb",),
    default_doc="Spark's own, 1 GB",
)
CORES = Key(
    f"{_CM}.cpu.cores",
    COUNT,
    None,
    _CONTAINER,
    "Cores of an executor where the master is a cluster, unless `spark.executor.cores` is set.",
    renamed_from=("yarn.container.cpu.cores",),
    default_doc="Spark's own",
)
REQUEST_TIMEOUT = Key(
    f"{_CM}.request.timeout.ms",
    DURATION,
    "5000",
    _LIVE,
    "Time a preferred host has.",
    unit="ms",
    renamed_from=("yarn.container.request.timeout.ms",),
    no_effect=_CLUSTER,
)
PREFERRED_HOST_DELAY = Key(
    f"{_CM}.preferred-host.last.retry.delay.ms",
    MILLISECONDS,
    "360000",
    _LIVE,
    "Delay before the last retry on a preferred host.",
    unit="ms",
    no_effect=_CLUSTER,
)
ALLOCATOR_SLEEP = Key(
    "cluster-manager.allocator.sleep.ms",
    DURATION,
    "3600",
    _LIVE,
    "Pause of Samza's allocator.",
    unit="ms",
    renamed_from=("yarn.allocator.sleep.ms",),
    no_effect=_CLUSTER,
)
COORDINATOR_SLEEP = Key(
    "cluster-manager.jobcoordinator.sleep.interval.ms",
    DURATION,
    "1000",
    _LIVE,
    "Pause of Samza's coordinator loop.",
    unit="ms",
    no_effect="the loop waits for events",
)
FAULT_DOMAINS = Key(
    "cluster-manager.fault-domain-aware.standby.enabled",
    BOOLEAN,
    "false",
    _CONTAINER,
    "Standby tasks in other racks.",
    no_effect="containers run on one host",
)
FAULT_DOMAIN_MANAGER = Key(
    "cluster-manager.fault-domain-manager.factory",
    TEXT,
    "org.apache.samza.job.yarn.YarnFaultDomainManagerFactory",
    _CONTAINER,
    "Samza's source of racks.",
    no_effect="containers run on one host",
)
CLUSTER_MANAGER = Key(
    "samza.cluster-manager.factory",
    TEXT,
    "org.apache.samza.job.yarn.YarnResourceManagerFactory",
    _CONTAINER,
    "Samza's resource manager.",
    no_effect=_CLUSTER,
)
YARN_HA = Key(
    "yarn.am.high-availability.enabled",
    BOOLEAN,
    "false",
    _CONTAINER,
    "Samza's switch for containers that outlive the coordinator.",
    no_effect="containers always outlive their coordinator, and a new one adopts them",
)
YARN_HEARTBEAT_RETRIES = Key(
    "yarn.container.heartbeat.retry.count",
    NATURAL,
    "5",
    _CONTAINER,
    "How often a container looks for a new coordinator.",
)
YARN_HEARTBEAT_SLEEP = Key(
    "yarn.container.heartbeat.retry-sleep-duration.ms", DURATION, "10000", _CONTAINER, "Pause.", unit="ms"
)
YARN_RESOURCE = Key(
    "yarn.resources.%s.path",
    TEXT,
    None,
    _CONTAINER,
    "A file that YARN puts into each working folder; a path or a URL of Hadoop. "
    "`__samzaFrameworkInfrastructure`, a package of `grete package build framework`, brings the interpreter of "
    "coordinator, container and workers.",
)
YARN_RESOURCE_NAME = Key(
    "yarn.resources.%s.local.name",
    TEXT,
    None,
    _CONTAINER,
    "Its name there.",
    default_doc="the resource's",
)
YARN_RESOURCE_TYPE = Key(
    "yarn.resources.%s.local.type",
    one_of(ResourceType),
    None,
    _CONTAINER,
    "`ARCHIVE` is unpacked there. Samza's `PATTERN` is not there: Spark has no word for it.",
    default_doc="`ARCHIVE` for the framework's packages (`__samzaFrameworkApi`, `__samzaFrameworkInfrastructure`), "
    "else `FILE`",
)
YARN_RESOURCE_VISIBILITY = Key(
    "yarn.resources.%s.local.visibility",
    one_of(ResourceVisibility),
    "APPLICATION",
    _CONTAINER,
    "Who shares the copy on a node.",
    no_effect="Spark decides it: what everybody may read is shared with everybody, anything else with its user",
)
YARN_PACKAGE = Key(
    "yarn.package.path",
    TEXT,
    None,
    _CONTAINER,
    "An archive with the application's modules at its top, or a package of `grete package build application`, which "
    "YARN unpacks as `__package`; a path or a URL of Hadoop. Unless it is set `grete deploy` sends the package that "
    "`job.application.environment` names, else the folder of `job.application.path`.",
)
YARN_AM_MEMORY = Key(
    "yarn.am.container.memory.mb",
    COUNT,
    None,
    _CONTAINER,
    "Memory of the driver's JVM where the master is a cluster, unless `spark.driver.memory` is set.",
    unit="MB",
)
YARN_AM_CORES = Key(
    "yarn.am.container.cpu.cores",
    COUNT,
    None,
    _CONTAINER,
    "Cores of the container with driver and coordinator, unless `spark.driver.cores` is set.",
)
YARN_AM_OPTIONS = Key(
    "yarn.am.opts",
    TEXT,
    None,
    _CONTAINER,
    "Options of the driver's JVM, unless `spark.driver.extraJavaOptions` is set.",
)
YARN_AM_JAVA = Key(
    "yarn.am.java.home",
    TEXT,
    None,
    _CONTAINER,
    "Java of the driver's JVM, unless `spark.yarn.appMasterEnv.JAVA_HOME` is set.",
)
YARN_STAGING = Key(
    "yarn.job.staging.directory",
    TEXT,
    None,
    _CONTAINER,
    "Where files are while they are sent, unless `spark.yarn.stagingDir` is set.",
)
YARN_QUEUE = Key("yarn.queue", TEXT, None, _CONTAINER, "YARN's queue, unless `spark.yarn.queue` is set.")
YARN_LABEL = Key(
    "yarn.container.label",
    TEXT,
    None,
    _CONTAINER,
    "Label of the executors' nodes, unless `spark.yarn.executor.nodeLabelExpression` is set.",
)
YARN_AM_LABEL = Key(
    "yarn.am.container.label",
    TEXT,
    None,
    _CONTAINER,
    "Label of the driver's node, unless `spark.yarn.am.nodeLabelExpression` is set.",
)
YARN_PRINCIPAL = Key(
    "yarn.kerberos.principal", TEXT, None, _CONTAINER, "Unless `spark.kerberos.principal` is set."
)
YARN_KEYTAB = Key("yarn.kerberos.keytab", TEXT, None, _CONTAINER, "Unless `spark.kerberos.keytab` is set.")
YARN_VIEWERS = Key(
    "yarn.job.view.acl", TEXT, None, _CONTAINER, "Who may see it, unless `spark.ui.view.acls` is set."
)
YARN_MODIFIERS = Key(
    "yarn.job.modify.acl", TEXT, None, _CONTAINER, "Who may kill it, unless `spark.modify.acls` is set."
)
YARN_OTHER = Key(
    "yarn.%s",
    TEXT,
    None,
    _CONTAINER,
    "Samza's requests to YARN.",
    is_open=True,
    no_effect="Spark asks YARN; use `spark.yarn.*`",
)

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
