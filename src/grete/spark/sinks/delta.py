"""An output in a Delta table: each batch is one commit of the table, which is there once."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from grete.api import Batch
from grete.config.key_tables.outputs import OUTPUT_OPTION
from grete.config.settings.outputs import OutputSettings
from grete.errors import ApplicationError, Fenced, JobError
from grete.failpoints import failpoint
from grete.model.fence import Fence
from grete.spark.jvm import java_session, jvm_of
from grete.spark.sinks.base import compute_only
from grete.spark.sinks.upserts import DELETED, Upsert
from grete.systems.commit_group import SegmentWrite

_log = logging.getLogger(__name__)
_S3 = ("s3", "s3a", "s3n")


@dataclass(frozen=True, slots=True)
class _Mark:
    """The commit message of a commit of ours: by which container, and up to which batch."""

    app: str
    epoch: int
    version: int
    batch: str

    def text(self) -> str:
        return json.dumps(
            {"grete": self.app, "epoch": self.epoch, "version": self.version, "batch": self.batch}
        )

    @classmethod
    def of(cls, text: str) -> _Mark:
        found = json.loads(text)
        return cls(found["grete"], int(found["epoch"]), int(found["version"]), str(found["batch"]))


class DeltaSink:
    """Appends to the table, under a transaction version that grows with each commit of this container's output.

    Delta drops a write whose version is not greater than the last one, so the first commit of a container, which is
    empty, ends its predecessor: what that one still writes has an older version. Which batch was the last is in the
    message of the commit (`userMetadata`). With `replaces`, each batch takes the place of all rows, with keys each
    row that of the one with the same ones.

    Which table it is is noted in the file `noted`: Delta makes one where there is none, and one that was dropped is
    not to be made again unseen.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: OutputSettings,
        app: str,
        fence: Fence,
        noted: Path,
        *,
        replaces: bool,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._path = settings.target_path
        self._app = app
        self._fence = fence
        self._noted = noted
        self._replaces = replaces
        self._upsert = Upsert.of(settings)
        self._last: _Mark | None = None
        self._warn_of_s3()

    def write(self, rows: DataFrame, batch: Batch) -> Sequence[SegmentWrite]:
        """Append the rows as one commit, unless they are there.

        Raises:
            Fenced: a later incarnation of the container writes the table.
            ApplicationError: it refuses the rows, whose columns are not its own.
            JobError: the table is another one than the one that was written.
        """
        if self._last is not None and not self._is_there():
            raise self._dropped("")
        last = self._last or self._claim(rows)
        if last.batch == batch.id:
            self._last = last
            compute_only(rows)
            return ()
        mark = _Mark(self._app, self._fence.epoch, last.version + 1, batch.id)
        if self._upsert is None:
            self._append(rows, mark, "overwrite" if self._replaces else "append")
        else:
            self._merge(self._upsert, rows, mark)
        self._last = mark
        failpoint("sink.committed")
        return ()

    def _warn_of_s3(self) -> None:
        scheme = self._path.partition("://")[0]
        keys = ("spark.delta.logStore.class", f"spark.delta.logStore.{scheme}.impl")
        if scheme in _S3 and not any(self._spark.conf.get(key, None) for key in keys):
            _log.warning(
                "outputs.%s.path=%s: Delta's own log in S3 is for one driver, so one that was paused and succeeded "
                "can overwrite its successor's commit; set %s to a log store for several, or write files",
                self._settings.name,
                self._path,
                keys[1],
            )

    def _claim(self, rows: DataFrame) -> _Mark:
        """Commit nothing, so that every earlier incarnation is refused from now on; says where it stood."""
        noted = self._noted.read_text() if self._noted.exists() else ""
        if noted and noted != (now_there := self._table_id()):
            raise self._dropped(now_there)
        before = self._newest()
        self._refuse_later(before)
        claimed = _Mark(self._app, self._fence.epoch, before.version + 1, before.batch)
        columns = rows.columns if self._upsert is None else self._upsert.columns(rows)
        self._append(rows.select(*columns).limit(0), claimed, "append")
        now = self._newest()
        if now != claimed:
            raise self._fenced(max(now.epoch, self._fence.epoch))
        if not noted:
            self._noted.parent.mkdir(parents=True, exist_ok=True)
            self._noted.write_text(self._table_id())
        return claimed

    def _refuse_later(self, found: _Mark) -> None:
        if found.epoch > self._fence.epoch:
            raise self._fenced(found.epoch)

    def _fenced(self, seen: int) -> Fenced:
        return Fenced(f"{self._app} in the Delta table {self._path}", epoch=self._fence.epoch, seen=seen)

    def _append(self, rows: DataFrame, mark: _Mark, mode: str) -> None:
        writer = rows.write.format("delta").mode(mode).options(**self._settings.options)
        if self._settings.partition_by:
            writer = writer.partitionBy(*self._settings.partition_by)
        marked = writer.option("txnAppId", self._app).option("txnVersion", mark.version)
        try:
            marked.option("userMetadata", mark.text()).save(self._path)
        except AnalysisException as error:
            raise self._refused(rows, mark, error) from error

    def _merge(self, upsert: Upsert, rows: DataFrame, mark: _Mark) -> None:
        """One commit as well, which Delta drops by the same rule: of statements the session has what writers have as
        options."""
        columns = [f"`{name}`" for name in upsert.columns(rows)]
        session, view = rows.sparkSession, f"grete_{uuid.uuid4().hex}"
        upsert.one_a_key(rows).createOrReplaceTempView(view)
        settings = {
            "spark.databricks.delta.write.txnAppId": self._app,
            "spark.databricks.delta.write.txnVersion": str(mark.version),
            "spark.databricks.delta.commitInfo.userMetadata": mark.text(),
        }
        try:
            for name, value in settings.items():
                session.conf.set(name, value)
            session.sql(
                f"MERGE INTO delta.`{self._path}` AS t USING {view} AS s "  # noqa: S608 - the operator's own table
                f"ON {' AND '.join(f't.`{key}` = s.`{key}`' for key in upsert.keys)} "
                f"WHEN MATCHED AND s.{DELETED} = 1 THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in columns)} "
                f"WHEN NOT MATCHED AND s.{DELETED} = 0 THEN INSERT ({', '.join(columns)}) "
                f"VALUES ({', '.join(f's.{name}' for name in columns)})"
            )
        except AnalysisException as error:
            raise self._refused(rows, mark, error) from error
        finally:
            for name in settings:
                session.conf.unset(name)
            session.catalog.dropTempView(view)

    def _refused(self, rows: DataFrame, mark: _Mark, error: AnalysisException) -> ApplicationError:
        return ApplicationError(
            f"outputs.{self._settings.name}: the Delta table {self._path} refuses batch {mark.batch!r}, and has "
            f"nothing of it: {self._difference(rows)}{str(error)[:1500]}"
        )

    def _difference(self, rows: DataFrame) -> str:
        """How the rows differ from the table, with the way out; empty where they do not."""
        if not self._is_there():
            return ""
        table = self._spark.read.format("delta").load(self._path)
        there, given = dict(table.dtypes), dict(rows.dtypes)
        said = []
        if new := [f"{name} {type_}" for name, type_ in given.items() if name not in there]:
            option = f"{OUTPUT_OPTION.named(self._settings.name, 'mergeSchema')}=true"
            said.append(f"it has no column {', '.join(new)} ({option} adds what is new)")
        said += [
            f"its column {name} is {there[name]}, and {type_} in the rows"
            for name, type_ in given.items()
            if there.get(name, type_) != type_
        ]
        return "".join(f"{one}; " for one in said)

    def _newest(self) -> _Mark:
        """The last commit of this output, of version 0 when there is none yet."""
        if not self._is_there():
            return _Mark(self._app, 0, 0, "")
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{self._path}`")
        ours = history.where(F.get_json_object("userMetadata", "$.grete") == self._app)
        row = ours.orderBy(F.desc("version")).select("userMetadata").first()
        return _Mark(self._app, 0, 0, "") if row is None else _Mark.of(row[0])

    def _is_there(self) -> bool:
        jvm = jvm_of(self._spark)
        return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(java_session(self._spark), self._path))

    def _table_id(self) -> str:
        """The id that Delta has given the table; "" where there is none."""
        if not self._is_there():
            return ""
        row = self._spark.sql(f"DESCRIBE DETAIL delta.`{self._path}`").select("id").first()
        return "" if row is None else str(row[0])

    def _dropped(self, now: str) -> JobError:
        found = "another table is in its place" if now else "it is gone"
        return JobError(
            f"outputs.{self._settings.name}: the Delta table {self._path} is not the one that was written: {found}, "
            f"and earlier batches are not in it. Restore it; or, if that is meant, remove {self._noted}, and rewind "
            f"to have rows written again"
        )

    def close(self) -> None:
        """Nothing is held."""
