"""The settings that differ from plain Spark's without anybody's having asked, each with its reason.

`spark.*` keys of the job come before them. `docs/pipelines.md` has the table, `grete run --dry-run` what a job gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.config.settings.spark import RETAINED, RETAINED_BATCHES
from grete.config.time_zone import TIME_ZONE
from grete.spark.session.java_options import FILE_MANAGER
from grete.spark.session.kafka_options import REDACTED_OPTIONS

STAGE_ATTEMPTS = "spark.stage.maxConsecutiveAttempts"
PARTITIONS = "spark.sql.shuffle.partitions"
DAEMON = "spark.python.daemon.module"
MOST_RESULTS = "spark.driver.maxResultSize"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTOR_JAVA_DEFAULTS = "spark.executor.defaultJavaOptions"
SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"


@dataclass(frozen=True, slots=True)
class Default:
    """A value and why it is not Spark's. `value` is words in angle brackets where it depends on the job."""

    value: str
    reason: str


ALWAYS = {
    "spark.master": Default("local[*]", "plain Spark refuses to start without one"),
    "spark.ui.enabled": Default("false", "the pages have no login, and show plans and data"),
    "spark.ui.killEnabled": Default("false", "nobody without a login may end a query"),
    "spark.master.rest.enabled": Default("false", "submits without a login"),
    "spark.ui.showConsoleProgress": Default("false", "a progress bar is no line of a log"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": Default(
        "20000", "fewer crossings to Python than with 10,000"
    ),
    "spark.sql.execution.arrow.maxBytesPerBatch": Default(
        str(32 << 20), "large records stay within a worker's memory"
    ),  # in digits: its workers take no other
    RETAINED: Default(RETAINED_BATCHES, "a lineage goes back by one batch at most"),
    "spark.sql.streaming.stopTimeout": Default("120s", "plain Spark waits for ever"),
    "spark.sql.redaction.options.regex": Default(
        REDACTED_OPTIONS, "plans show no option of a login to Kafka, either"
    ),
    "spark.redaction.regex": Default(
        "(?i)secret|password|token|access[.]?key|sensitive|sas|jaas|credential",
        "logs and pages mask secrets of Kafka and Azure, too",
    ),
}
ON_THIS_MACHINE = {
    "spark.driver.host": Default("127.0.0.1", "nobody on another machine reaches a local driver"),
    "spark.driver.bindAddress": Default("127.0.0.1", "nobody on another machine reaches a local driver"),
    "spark.authenticate": Default(
        "true", "other users of the machine reach no port without the secret that Spark draws"
    ),
}
"""Further defaults on a local master."""
ON_A_CLUSTER = {
    "spark.scheduler.minRegisteredResourcesRatio": Default(
        "1.0", "shares and shuffles are planned when all executors are there"
    ),
    "spark.scheduler.maxRegisteredResourcesWaitingTime": Default("30s", "waits for executors no longer"),
}
"""Further defaults elsewhere: shares, shuffles and the look at executors begin with all that were asked for."""
COMPUTED = {
    PARTITIONS: Default(
        "<cores>", "200 tasks for each small shuffle cost a streaming aggregation more than its work"
    ),
    STAGE_ATTEMPTS: Default(
        "<1 with Kafka on a local master>",
        "tasks write into the transaction, where rows of a first attempt would stay",
    ),
    MOST_RESULTS: Default(
        "<half of spark.driver.memory, 1g at most>", "Spark says what was too large, a full heap does not"
    ),
    JAVA_OPTIONS: Default(
        "<options for a quick start, and -XX:+ExitOnOutOfMemoryError>",
        "a container starts sooner, and a driver without memory ends",
    ),
    EXECUTOR_JAVA_DEFAULTS: Default(
        "<options for a quick start on a cluster>",
        "an executor starts sooner; spark.executor.extraJavaOptions come after them",
    ),
    DAEMON: Default("<grete.spark.worker_daemon on a local master>", "workers start without compiling"),
    SOCKETS: Default("<true on a local master>", "each task with Python waits 40 ms over TCP"),
    SOCKET_FOLDER: Default("<a folder of the driver's own>", "nobody else reaches the sockets"),
    FILE_MANAGER: Default(
        "<one that renames in one call, on disks>", "Hadoop starts a program for each file otherwise"
    ),
    SNAPSHOT_PARTITIONS: Default(
        "<cores, with Delta on a local master>",
        "Delta reads its log in 50 tasks; on two cores that takes 4 s at each commit, with two tasks 0.3",
    ),
    "spark.driver.host": Default("<this machine's address towards the master>", "executors reach it there"),
    "spark.jars": Default("<jars fetched before>", "of Kafka's connector and of outputs"),
    "spark.jars.packages": Default("<what is in no folder>", "of Kafka's connector and of outputs"),
    "spark.sql.extensions": Default("<Delta's, with an output to Delta>", "Delta asks for it"),
    "spark.sql.catalog.spark_catalog": Default("<Delta's, with an output to Delta>", "Delta asks for it"),
    TIME_ZONE: Default(
        "<written down at the first submit>", "Spark's own at that time, also on the next machine"
    ),
    "spark.app.name": Default("<job and container>", "finds them among Spark's applications"),
}
"""What depends on the job."""
NOT_FOR_SHARES = {
    "spark.speculation": Default(
        "false", "each second attempt at a share of StreamTasks would end the first"
    ),
    "spark.dynamicAllocation.enabled": Default(
        "false",
        "a share takes a core for as long as it runs, and an epoch has as many as there are cores when it begins; "
        "say how many there shall be with spark.executor.instances or spark.cores.max",
    ),
}
"""Switched off for StreamTasks, whatever is configured, and why."""


def values(defaults: Mapping[str, Default]) -> dict[str, str]:
    """The settings alone."""
    return {key: one.value for key, one in defaults.items()}


def reason(key: str) -> str:
    """Why a setting is not Spark's."""
    return next(
        one[key].reason
        for one in (ALWAYS, ON_THIS_MACHINE, ON_A_CLUSTER, COMPUTED, NOT_FOR_SHARES)
        if key in one
    )


def table() -> list[tuple[str, str, str, str]]:
    """Every key with its value, where it is so, and why."""
    return [
        (key, one.value, where, one.reason)
        for where, defaults in (
            ("everywhere", ALWAYS),
            ("local master", ON_THIS_MACHINE),
            ("cluster", ON_A_CLUSTER),
            ("by the job", COMPUTED),
            ("StreamTasks, always", NOT_FOR_SHARES),
        )
        for key, one in defaults.items()
    ]
