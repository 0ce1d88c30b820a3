"""A job's stores, checkpoints, lag, history and dead letters as tables of Spark, for SQL.

    from grete import tables

    tables.register(spark)
    spark.read.format("grete").option("job", "totals").load("store/totals").createOrReplaceTempView("totals")

`load` takes `store/NAME`, `checkpoints`, `lag`, `history` or `dead-letters`; the option `home` is GRETE_HOME by
default. Each read looks anew. A store has a partition for each of its tasks, which executors read where they see the
home; what else there is, is read as one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from grete.environment import grete_home
from grete.errors import ConfigError, MissingExtra
from grete.model.ids import JobId
from grete.notebook import NotebookJob, NotebookTable
from grete.operations.job_handle import open_job
from grete.operations.store_entries import text_of_key
from grete.suggestions import or_one_of

try:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType
except ModuleNotFoundError as error:
    raise MissingExtra(str(error.name), "spark") from error

__all__ = ["register"]
_STORE = "store/"
_OF_A_STORE = "task STRING, key STRING, value STRING, time TIMESTAMP"
_MOST_LETTERS = 1_000_000
_TABLES: dict[str, tuple[str, Callable[[NotebookJob], NotebookTable]]] = {
    "checkpoints": ("task STRING, partition STRING, offset STRING, batch BIGINT", NotebookJob.checkpoint),
    "lag": (
        "task STRING, partition STRING, checkpointed STRING, upcoming STRING, lag BIGINT",
        NotebookJob.lag,
    ),
    "history": ("when STRING, event STRING, details STRING, who STRING", NotebookJob.history),
    "dead-letters": (
        "number BIGINT, task STRING, `from` STRING, error STRING, key STRING, value STRING, replayed BOOLEAN",
        lambda job: job.dead_letters(last=_MOST_LETTERS),
    ),
}


def register(spark: SparkSession) -> None:
    """Let the session read the format `grete`, of the jobs of this process's GRETE_HOME."""

    class OfThisHome(JobTables):
        """Travels with the home: Spark plans in another process, which has the environment of its JVM."""

        home = str(grete_home().absolute())

    spark.dataSource.register(OfThisHome)


class JobTables(DataSource):
    """The format `grete`."""

    home = ""
    """Where jobs are, unless the option names it."""

    @classmethod
    def name(cls) -> str:
        """See DataSource."""
        return "grete"

    def schema(self) -> str:
        """See DataSource.

        Raises:
            ConfigError: no such table, or no option `job`.
        """
        table = self._table()
        return _OF_A_STORE if table.startswith(_STORE) else _TABLES[table][0]

    def reader(self, schema: StructType) -> DataSourceReader:
        """See DataSource."""
        return JobTableReader(self._job(), self._table(), self.options.get("home") or self.home)

    def _table(self) -> str:
        table = str(self.options.get("path") or "")
        if table not in _TABLES and not (table.startswith(_STORE) and table != _STORE):
            known = ("store/NAME", *_TABLES)
            raise ConfigError(
                f"there is no table {table!r} of a job{or_one_of(table, known)}: load one of those"
            )
        return table

    def _job(self) -> str:
        job = self.options.get("job")
        if not job:
            raise ConfigError('name the job: .option("job", "NAME") or "NAME:ID"')
        return str(job)


class JobTableReader(DataSourceReader):
    """Reads one table."""

    def __init__(self, job: str, table: str, home: str) -> None:
        self._job = job
        self._table = table
        self._home = home

    def partitions(self) -> Sequence[InputPartition]:
        """See DataSourceReader: the tasks of a store."""
        if not self._table.startswith(_STORE):
            return [InputPartition(None)]
        with _in_home(self._home), open_job(JobId.parse(self._job)) as handle:
            tasks = sorted(handle.changelogs())
        return [InputPartition(str(task)) for task in tasks] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """See DataSourceReader."""
        with _in_home(self._home):
            job = NotebookJob(JobId.parse(self._job))
            if self._table.startswith(_STORE):
                rows = job.store(self._table.removeprefix(_STORE), task=partition.value)
                for row in rows:
                    at = datetime.fromisoformat(row["time"])
                    yield row["task"], _text(row["key"]), _text(row["value"]), at
                return
            table = _TABLES[self._table][1](job)
            for row in table:
                yield tuple(_plain(row[name]) for name in table.columns)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int) else _text(value)


def _text(value: Any) -> str | None:
    return None if value is None else text_of_key(value)


@contextmanager
def _in_home(home: str) -> Iterator[None]:
    """Spark's worker has the environment of its executor, which knows no home."""
    before = os.environ.get("GRETE_HOME")
    os.environ["GRETE_HOME"] = home
    try:
        yield
    finally:
        if before is None:
            del os.environ["GRETE_HOME"]
        else:
            os.environ["GRETE_HOME"] = before
