"""How the records of a batch get to the producer of its transaction.

The producer is in the driver's JVM. Where Spark's tasks run there, and none runs twice, they send what they compute.
Elsewhere they compute it, and the driver takes what each has made, once, however often it was tried, and sends that.

The classes are the connector's and Spark's own and not their public interface: `KafkaWriter`, `KafkaWriteTask`,
`SparkPlan.executeCollectIterator`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from grete.config.settings.spark import local_cores
from grete.spark.jvm import query_execution

_log = logging.getLogger("grete.container")
_TOO_LARGE = "spark.driver.maxResultSize"

Send = Callable[[Any, Any], None]
"""Sends by a producer of these settings (the JVM's), to this topic (an option of Scala's); all is flushed then."""


class Sender(Protocol):
    """Records of batches, one after the other."""

    def prepare(self, records: DataFrame) -> Send:
        """Whatever can be done before the transaction begins, in which `Send` is called, once.

        Raises:
            PySparkException, Py4JError: Spark failed; so may `Send`.
        """
        ...


def sender_for(jvm: Any, master: str, stage_attempts: str | None) -> Sender:
    """For a session with this master, and this many attempts at a stage."""
    return TaskSender(jvm) if can_tasks_send(master, stage_attempts) else DriverSender(jvm)


def can_tasks_send(master: str, stage_attempts: str | None) -> bool:
    """Whether tasks find the driver's producer, and none is repeated, whose rows would be sent twice."""
    return runs_tasks_once(master) and stage_attempts == "1"


def runs_tasks_once(master: str) -> bool:
    """Whether Spark never repeats a failed task; local masters do not by default."""
    return local_cores(master) is not None and "," not in master


class TaskSender:
    """Spark's tasks send, while they compute."""

    def __init__(self, jvm: Any) -> None:
        self._writer = scala_object(jvm.org.apache.spark.sql.kafka010, "KafkaWriter")

    def prepare(self, records: DataFrame) -> Send:
        """See Sender: nothing.

        The connector's writer itself: `records.write.format("kafka")` comes there by way of a command and one more
        query, which are analysed and planned for each batch.
        """
        execution = query_execution(records)
        return lambda settings, into: self._writer.write(execution, settings, into)


class DriverSender:
    """The driver sends, when all is computed; so the transaction is short.

    Rows come as Spark compresses them, and are unpacked one by one. Where they are larger than the driver takes
    (`spark.driver.maxResultSize`), executors keep them, and they come partition by partition, from that batch on.
    """

    def __init__(self, jvm: Any) -> None:
        self._task = jvm.org.apache.spark.sql.kafka010.KafkaWriteTask
        self._comes_in_parts = False

    def prepare(self, records: DataFrame) -> Send:
        """See Sender: the rows are computed."""
        if not self._comes_in_parts:
            try:
                return self._whole(records)
            except (PySparkException, Py4JError) as error:
                if _TOO_LARGE not in str(error):
                    raise
            _log.warning(
                "a batch is larger than %s: executors keep its rows, which the driver takes partition by partition",
                _TOO_LARGE,
            )
            self._comes_in_parts = True
        return self._in_parts(records)

    def _whole(self, records: DataFrame) -> Send:
        plan = query_execution(records).executedPlan()
        rows = plan.executeCollectIterator()._2()
        return lambda settings, into: self._send(plan, rows, settings, into)

    def _in_parts(self, records: DataFrame) -> Send:
        execution = query_execution(records.localCheckpoint(eager=True))
        plan = execution.executedPlan()

        def send(settings: Any, into: Any) -> None:
            try:
                self._send(plan, plan.executeToIterator(), settings, into)
            finally:
                execution.logical().rdd().unpersist(False)

        return send

    def _send(self, plan: Any, rows: Any, settings: Any, into: Any) -> None:
        task = self._task(settings, plan.output(), into)
        try:
            task.execute(rows)
        finally:
            task.close()  # flushes


def scala_object(package: Any, name: str) -> Any:
    """The Scala object of this name."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
