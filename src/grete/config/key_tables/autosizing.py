"""Keys of autosizing: who decides how many containers a job has, by which rule, and what was decided."""

from __future__ import annotations

from grete.config.choices import SizingPolicy
from grete.config.key import (
    BOOLEAN,
    CONTAINERS,
    COUNT,
    DURATION,
    NATURAL,
    TEXT,
    ChangeClass,
    Key,
    bounded,
    one_of,
)

_CONTAINER, _QUERY, _LIVE = ChangeClass.RESTART_CONTAINER, ChangeClass.RESTART_QUERY, ChangeClass.LIVE
_JVM = "it sets up Samza's JVM processes"

AUTOSIZING = Key(
    "job.autosizing.enabled",
    BOOLEAN,
    "false",
    _QUERY,
    "Whether `job.autosizing.container.count` wins. While it does, the results of an autosizer that are in force "
    "stay when a file that leaves them out is submitted.",
)
AUTOSIZING_COUNT = Key(
    "job.autosizing.container.count", CONTAINERS, None, _QUERY, "Containers, when enabled."
)
AUTOSIZING_THREADS = Key(
    "job.autosizing.container.thread.pool.size", NATURAL, None, _CONTAINER, "Threads.", no_effect=_JVM
)
AUTOSIZING_HEAP = Key(
    "job.autosizing.container.maxheap.mb", COUNT, None, _CONTAINER, "Heap.", unit="MB", no_effect=_JVM
)
AUTOSIZING_MEMORY = Key(
    "job.autosizing.container.memory.mb", COUNT, None, _CONTAINER, "Memory.", unit="MB", no_effect=_JVM
)
AUTOSIZING_CORES = Key(
    "job.autosizing.container.cpu.cores", COUNT, None, _CONTAINER, "Cores.", no_effect=_JVM
)
AUTOSIZING_WORKER_HEAP = Key(
    "job.autosizing.worker.maxheap.mb",
    COUNT,
    None,
    _CONTAINER,
    "Heap of a worker.",
    unit="MB",
    no_effect=_JVM,
)
AUTOSIZING_OTHER = Key(
    "job.autosizing.%s",
    TEXT,
    None,
    _CONTAINER,
    "Any other: part of the config id, as in Samza.",
    is_open=True,
)

AUTOSIZING_POLICY = Key(
    "job.autosizing.policy",
    one_of(SizingPolicy),
    "outside",
    _LIVE,
    "Who decides: `outside` is another program, which writes the results; `lag` is the coordinator, by the keys "
    "below: how many containers a job of StreamTasks has, how many executors a pipeline has on a cluster, and how "
    "many records its batches.",
)
AUTOSIZING_LEAST = Key(
    "job.autosizing.container.least", CONTAINERS, "1", _LIVE, "Never fewer containers, with the policy `lag`."
)
AUTOSIZING_MOST = Key(
    "job.autosizing.container.most",
    CONTAINERS,
    None,
    _LIVE,
    "Never more containers, with the policy `lag`.",
    default_doc="as many as tasks",
)
AUTOSIZING_EXECUTORS = Key(
    "job.autosizing.executor.count",
    CONTAINERS,
    None,
    _QUERY,
    "Executors of a pipeline, as they were decided with the policy `lag`.",
)
AUTOSIZING_LEAST_EXECUTORS = Key(
    "job.autosizing.executor.least",
    CONTAINERS,
    "1",
    _LIVE,
    "Never fewer executors of a pipeline, with the policy `lag`.",
)
AUTOSIZING_MOST_EXECUTORS = Key(
    "job.autosizing.executor.most",
    CONTAINERS,
    None,
    _LIVE,
    "Never more executors of a pipeline, with the policy `lag`, which needs it.",
)
AUTOSIZING_BATCH = Key(
    "job.autosizing.batch.records",
    NATURAL,
    None,
    _QUERY,
    "Most records of a pipeline's batch, as they were decided with the policy `lag`; `task.max.records.per.batch` "
    "where that is less.",
    unit="records",
)
AUTOSIZING_LAG = Key(
    "job.autosizing.lag.ms",
    DURATION,
    "60000",
    _LIVE,
    "A job that would need longer to process what it is behind gets more containers or executors, which work it off "
    "in this time.",
    unit="ms",
)
AUTOSIZING_UTILIZATION = Key(
    "job.autosizing.utilization.percent",
    bounded("a percentage from 10 to 90", 10, 90),
    "70",
    _LIVE,
    "How much of what containers or executors can process a size leaves them to do.",
)
AUTOSIZING_UP_AFTER = Key(
    "job.autosizing.up.after.ms",
    DURATION,
    "60000",
    _LIVE,
    "For how long a job has to be too far behind before it gets more.",
    unit="ms",
)
AUTOSIZING_DOWN_AFTER = Key(
    "job.autosizing.down.after.ms",
    DURATION,
    "900000",
    _LIVE,
    "For how long fewer would have been enough before it gets fewer.",
    unit="ms",
)
RULE = (
    AUTOSIZING,
    AUTOSIZING_POLICY,
    AUTOSIZING_LEAST,
    AUTOSIZING_MOST,
    AUTOSIZING_LEAST_EXECUTORS,
    AUTOSIZING_MOST_EXECUTORS,
    AUTOSIZING_LAG,
    AUTOSIZING_UTILIZATION,
    AUTOSIZING_UP_AFTER,
    AUTOSIZING_DOWN_AFTER,
)
"""What people set, and no autosizer writes."""

TABLE: tuple[Key[object], ...] = tuple(v for v in list(globals().values()) if isinstance(v, Key))
