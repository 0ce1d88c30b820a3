"""An output in a Delta table: each batch is one commit of the table, which is there once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from grete.api import Batch
from grete.config.settings.outputs import OutputSettings
from grete.errors import Fenced
from grete.failpoints import failpoint
from grete.model.fence import Fence
from grete.spark.sinks.base import compute_only
from grete.systems.commit_group import SegmentWrite


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
    message of the commit (`userMetadata`). With `replaces`, each batch takes the place of all rows.
    """

    def __init__(
        self, spark: SparkSession, settings: OutputSettings, app: str, fence: Fence, *, replaces: bool
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._path = settings.target_path
        self._app = app
        self._fence = fence
        self._replaces = replaces
        self._last: _Mark | None = None

    def write(self, rows: DataFrame, batch: Batch) -> Sequence[SegmentWrite]:
        """Append the rows as one commit, unless they are there.

        Raises:
            Fenced: a later incarnation of the container writes the table.
        """
        last = self._last or self._claim(rows)
        if last.batch == batch.id:
            self._last = last
            compute_only(rows)
            return ()
        self._last = self._append(
            rows, batch.id, last.version + 1, "overwrite" if self._replaces else "append"
        )
        failpoint("sink.committed")
        return ()

    def _claim(self, rows: DataFrame) -> _Mark:
        """Commit nothing, so that every earlier incarnation is refused from now on; says where it stood."""
        before = self._newest()
        self._refuse_later(before)
        claimed = self._append(rows.limit(0), before.batch, before.version + 1, "append")
        now = self._newest()
        if now != claimed:
            raise self._fenced(max(now.epoch, self._fence.epoch))
        return claimed

    def _refuse_later(self, found: _Mark) -> None:
        if found.epoch > self._fence.epoch:
            raise self._fenced(found.epoch)

    def _fenced(self, seen: int) -> Fenced:
        return Fenced(f"{self._app} in the Delta table {self._path}", epoch=self._fence.epoch, seen=seen)

    def _append(self, rows: DataFrame, batch: str, version: int, mode: str) -> _Mark:
        mark = _Mark(self._app, self._fence.epoch, version, batch)
        writer = rows.write.format("delta").mode(mode).options(**self._settings.options)
        if self._settings.partition_by:
            writer = writer.partitionBy(*self._settings.partition_by)
        marked = writer.option("txnAppId", self._app).option("txnVersion", version)
        marked.option("userMetadata", mark.text()).save(self._path)
        return mark

    def _newest(self) -> _Mark:
        """The last commit of this output, of version 0 when there is none yet."""
        jvm = self._spark._jvm
        assert jvm is not None
        if not jvm.io.delta.tables.DeltaTable.isDeltaTable(self._spark._jsparkSession, self._path):
            return _Mark(self._app, 0, 0, "")
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{self._path}`")
        ours = history.where(F.get_json_object("userMetadata", "$.grete") == self._app)
        row = ours.orderBy(F.desc("version")).select("userMetadata").first()
        return _Mark(self._app, 0, 0, "") if row is None else _Mark.of(row[0])

    def close(self) -> None:
        """Nothing is held."""
