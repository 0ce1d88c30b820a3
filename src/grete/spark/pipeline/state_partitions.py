"""In how many partitions a pipeline's state is. Spark keeps that with the state, and moves it when it is asked to."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from grete.config.settings import Settings
from grete.spark.jvm import state_repartitioner
from grete.spark.lineage.decision import LineageInfo
from grete.spark.lineage.files import Lineages
from grete.spark.lineage.offset_log import SparkProgress
from grete.spark.session.defaults import PARTITIONS
from grete.text_logs import shortened

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_MOVABLE = "RocksDBStateStoreProvider"

_log = logging.getLogger("grete.container")


def wanted_partitions(
    spark: SparkSession, settings: Settings, lineages: Lineages, lineage: LineageInfo
) -> int | None:
    """The number that the configuration has, where the state is in another one; None where nothing is to be done.

    Where something would be, and cannot, it is said. Between two moves there is a batch: two records of batches that
    are the same would be taken for damage.
    """
    known, asked = lineages.planned_settings(lineage), settings.spark.state_partitions
    had, now = known.get(PARTITIONS), str(asked or spark.conf.get(PARTITIONS))
    if had in (None, now) or not (lineages.spark_checkpoint(lineage) / "state").is_dir():
        return None
    if asked is None:
        why = "nobody has asked for another number"
    elif not known.get(_PROVIDER, "").endswith(_MOVABLE):
        why = f"only state in RocksDB can be moved ({_PROVIDER}, when a lineage begins)"
    elif state_repartitioner(spark) is None:
        why = "Spark moves it since 4.2"
    else:
        progress = lineages.progress(lineage)
        has_run = isinstance(progress, SparkProgress) and progress.committed != lineage.silent
        return asked if has_run else None
    _log.warning(
        "%s=%s has no effect: the state of this pipeline is in %s partitions, and stays so: %s",
        *(PARTITIONS, now, had, why),
    )
    return None


def moved_state(
    spark: SparkSession, lineages: Lineages, lineage: LineageInfo, partitions: int, now_ms: int
) -> LineageInfo:
    """Let Spark move the state into so many partitions, in a copy that takes the place of what there is.

    Where Spark refuses, it is said, and the lineage goes on as it is. A batch that was begun has to be run before.

    Raises:
        OSError: there is no room for the copy.
    """
    move = state_repartitioner(spark)
    assert move is not None, "it was asked for before"
    _log.info("the state of lineage %s is moved into %d partitions", lineage.id, partitions)
    try:
        changed = lineages.repartition(lineage, lambda checkpoint: move(checkpoint, partitions), now_ms)
    except (Py4JJavaError, PySparkException) as error:
        said = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        why = shortened(" ".join(str(said).split()), 500)
        _log.warning("the state stays in as many partitions as it was in: Spark does not move it: %s", why)
        return lineage
    _log.info("the state of lineage %s is in %d partitions", lineage.id, partitions)
    return changed
