"""An output in a table of a database: a batch's rows and its number are written in one transaction.

Spark's tasks write the rows into a table beside, each over its own connection; then the driver moves them, and notes
the batch in `grete_commits`, in one transaction of the database. It is plain SQL, so any database that Spark writes
by JDBC will do; PostgreSQL is the one that is tested.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from grete.api import Batch
from grete.config.settings.outputs import OutputSettings
from grete.errors import Fenced, GreteError, JobError, StreamUnreachable
from grete.failpoints import failpoint
from grete.model.fence import Fence
from grete.spark.jvm import jvm_of
from grete.spark.sinks.base import compute_only
from grete.spark.sinks.upserts import DELETED, Upsert
from grete.systems.commit_group import SegmentWrite

_CREATE = (
    "CREATE TABLE grete_commits (sink VARCHAR(400) NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL, "
    "batch VARCHAR(100) NOT NULL)"
)
_LOOK = "SELECT epoch FROM grete_commits WHERE 1 = 0"
_READ = "SELECT epoch, batch FROM grete_commits WHERE sink = ?"
_RAISE = "UPDATE grete_commits SET epoch = ? WHERE sink = ? AND epoch <= ?"
_FIRST = "INSERT INTO grete_commits (sink, epoch, batch) VALUES (?, ?, '')"
_NOTE = "UPDATE grete_commits SET batch = ? WHERE sink = ? AND epoch = ?"
_MAY_PASS = ("08", "53", "57")
"""Classes of SQLSTATE: no connection, no resources, the server is being stopped or started."""


class JdbcSink:
    """Appends to a table that is there; with `replaces`, each batch takes the place of all rows, with keys each row
    that of the one with the same ones.

    The row of `grete_commits` for this output has the epoch of the container that writes it, which ends every earlier
    one, and the last batch.
    """

    def __init__(
        self, spark: SparkSession, settings: OutputSettings, app: str, fence: Fence, *, replaces: bool
    ) -> None:
        self._jvm: Any = jvm_of(spark)
        self._settings = settings
        self._app = app
        self._fence = fence
        self._replaces = replaces
        self._upsert = Upsert.of(settings)
        self._table = settings.target_table
        self._staging = _beside(self._table, f"_grete_{zlib.crc32(app.encode()):08x}")
        self._last: str | None = None

    def write(self, rows: DataFrame, batch: Batch) -> Sequence[SegmentWrite]:
        """Append the rows and note the batch, unless it is noted.

        Raises:
            Fenced: a later incarnation of the container writes the table.
            StreamUnreachable: the database does not answer.
            JobError: it refuses the rows, the login or the table, in its own words.
        """
        if self._last is None:
            self._last = self._claim()
        if self._last == batch.id:
            compute_only(rows)
            return ()
        upsert = self._upsert
        self._stage(rows if upsert is None else upsert.one_a_key(rows))
        failpoint("sink.staged")
        self._move(rows.columns if upsert is None else upsert.columns(rows), batch)
        self._last = batch.id
        failpoint("sink.committed")
        return ()

    def _claim(self) -> str:
        """Raise the epoch of the row, or make it; returns the last batch."""
        self._make_commits()
        with self._transaction("note the writer of") as connection:
            raised = _execute(connection, _RAISE, self._fence.epoch, self._app, self._fence.epoch)
            noted = self._noted(connection)
            if noted is None:
                _execute(connection, _FIRST, self._app, self._fence.epoch)
            elif not raised:
                raise self._fenced(noted[0])
            return "" if noted is None else noted[1]

    def _make_commits(self) -> None:
        """The table of commits; another container may make it at the same time."""
        try:
            self._run(_LOOK)
        except JobError:
            try:
                self._run(_CREATE)
            except JobError:
                self._run(_LOOK)

    def _run(self, sql: str) -> None:
        with self._transaction("look up the commits of") as connection:
            statement = connection.prepareStatement(sql)
            statement.execute()
            statement.close()

    def _stage(self, rows: DataFrame) -> None:
        settings = self._settings
        writer = rows.write.format("jdbc").mode("overwrite").options(**settings.options)
        writer = writer.options(**settings.connection).option("dbtable", self._staging)
        try:
            writer.save()
        except Py4JJavaError as error:
            raise self._failed("write rows for", error) from error

    def _move(self, names: Sequence[str], batch: Batch) -> None:
        with self._transaction(f"move batch {batch.id} to") as connection:
            if not _execute(connection, _NOTE, batch.id, self._app, self._fence.epoch):
                found = self._noted(connection)
                raise self._fenced(self._fence.epoch if found is None else found[0])
            quote = connection.getMetaData().getIdentifierQuoteString().strip()
            columns = ", ".join(_quoted(name, quote) for name in names)
            insert = f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {self._staging}"  # noqa: S608 - the operator's own table
            if self._replaces:
                _execute(connection, f"DELETE FROM {self._table}")  # noqa: S608 - as above
            if self._upsert is not None:
                keys = [_quoted(key, quote) for key in self._upsert.keys]
                same = " AND ".join(f"{self._staging}.{key} = {self._table}.{key}" for key in keys)
                there = f"SELECT 1 FROM {self._staging} WHERE {same}"  # noqa: S608 - as above
                _execute(connection, f"DELETE FROM {self._table} WHERE EXISTS ({there})")  # noqa: S608 - as above
                insert += f" WHERE {_quoted(DELETED, quote)} = 0"
            _execute(connection, insert)
            failpoint("sink.moved")

    def _noted(self, connection: Any) -> tuple[int, str] | None:
        """The epoch and the last batch of this output's row."""
        statement = connection.prepareStatement(_READ)
        statement.setString(1, self._app)
        found = statement.executeQuery()
        row = (int(found.getLong(1)), str(found.getString(2))) if found.next() else None
        statement.close()
        return row

    def _fenced(self, seen: int) -> Fenced:
        return Fenced(
            f"{self._app} in grete_commits, beside {self._table}", epoch=self._fence.epoch, seen=seen
        )

    @contextmanager
    def _transaction(self, what: str) -> Iterator[Any]:
        """A connection whose work is committed at the end, or not done at all."""
        try:
            connection = self._connect()
        except Py4JJavaError as error:
            raise self._failed(what, error) from error
        try:
            connection.setAutoCommit(False)
            yield connection
            connection.commit()
        except Py4JJavaError as error:
            raise self._failed(what, error) from error
        finally:
            connection.close()  # what was not committed is rolled back

    def _connect(self) -> Any:
        jvm, properties = self._jvm, self._jvm.java.util.Properties()
        login = self._settings.connection
        url = login.pop("url")
        if driver := login.pop("driver", ""):
            jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(driver)
        for name, value in login.items():
            properties.setProperty(name, value)
        return jvm.java.sql.DriverManager.getConnection(url, properties)

    def _failed(self, what: str, error: Py4JJavaError) -> GreteError:
        """The database's own words, from under those of Spark and of its tasks."""
        text, state = str(error.java_exception), None
        cause = error.java_exception
        while cause is not None:
            if self._jvm.py4j.reflection.TypeUtil.isInstanceOf("java.sql.SQLException", cause):
                text, state = str(cause.getMessage()), cause.getSQLState()
            cause = cause.getCause()
        words = f"outputs.{self._settings.name}: cannot {what} table {self._table}: {text}"
        if state is not None and str(state).startswith(_MAY_PASS):
            return StreamUnreachable(words)
        return JobError(f"{words}. Nothing of the batch is in the table")

    def close(self) -> None:
        """Nothing is held between batches."""


def _beside(table: str, suffix: str) -> str:
    """The table's name with a suffix, inside of its quotes if it has any."""
    return f"{table[:-1]}{suffix}{table[-1]}" if table[-1] in '"`]' else f"{table}{suffix}"


def _quoted(name: str, quote: str) -> str:
    return f"{quote}{name.replace(quote, 2 * quote)}{quote}" if quote else name


def _execute(connection: Any, sql: str, *values: int | str) -> int:
    """Run a statement; returns how many rows it changed."""
    statement = connection.prepareStatement(sql)
    for place, value in enumerate(values, 1):
        if isinstance(value, int):
            statement.setLong(place, value)
        else:
            statement.setString(place, value)
    count = int(statement.executeUpdate())
    statement.close()
    return count
