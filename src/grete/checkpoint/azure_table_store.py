"""Checkpoints in a table of Azure Storage, as Samza's AzureCheckpointManager keeps them (S3-9).

A row a task and SSP: PartitionKey is the task's name, RowKey the SSP, `Offset` the offset (`azure_rows`). A
transaction takes 100 rows. A task with more is written in several, and until the last of them the checkpoint before
is the one that is found whole. Samza's reader passes over what is grete's own in a row, and its writer removes it,
which shows that it wrote. Samza removes no rows; here those of SSPs that are no inputs go. Each write reads the
task's rows first: two requests a task and commit, of eight tasks at a time.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from grete.azure.storage import AzureStorage
from grete.azure.tables import LARGEST_BATCH, Row, RowChanged, Table
from grete.checkpoint import azure_rows
from grete.checkpoint.azure_rows import StoredRow, WrittenCheckpoint
from grete.checkpoint.store import CheckpointStore, StoreContext, StoredCheckpoint, digest
from grete.config.key_tables.azure import CHECKPOINT_TABLE
from grete.errors import ConfigError, WireError
from grete.failpoints import failpoint
from grete.model.ids import TaskName

_TIMEOUT_S = 10.0
_ATTEMPTS = 3
_AT_ONCE = 8
_EMPTY = "=grete=empty"
"""The partition with a row for each task whose checkpoint has no offsets, and so no rows."""
_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_NO_LETTER = re.compile(r"[^A-Za-z0-9]")


class AzureTableCheckpointStore(CheckpointStore):
    """The rows of one job. There is no fence: `resolve` knows an old copy, which is all a fenced container writes."""

    def __init__(self, context: StoreContext) -> None:
        settings = context.settings.azure
        name = settings.checkpoint_table or _NO_LETTER.sub("", context.job.name)
        if not _TABLE_NAME.fullmatch(name):
            raise ConfigError(
                f"checkpoints in Azure: {name!r} cannot be the name of a table, which has 3 to 63 letters and digits "
                f"and begins with a letter; set {CHECKPOINT_TABLE.name}"
            )
        self._job = context.job
        self._storage = AzureStorage(settings.account, timeout_s=_TIMEOUT_S)
        self._table = Table(self._storage, name)
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="azure-checkpoints")
        self._not_empty: set[TaskName] = set()
        """Tasks of which `_EMPTY` is known to have no row."""

    def read(self, tasks: Collection[TaskName]) -> dict[TaskName, StoredCheckpoint]:
        """See CheckpointStore."""
        ordered = sorted(tasks)
        read = self._pool.map(lambda task: self._read(task)[0], ordered)
        found = dict(zip(ordered, read, strict=True))
        return {task: checkpoint for task, checkpoint in found.items() if checkpoint is not None}

    def _read(
        self, task: TaskName
    ) -> tuple[StoredCheckpoint | None, WrittenCheckpoint | None, Sequence[StoredRow]]:
        """The checkpoint; the write that it comes from, where it is a whole one of grete's; and all rows."""
        rows = [azure_rows.stored_row(row) for row, _ in self._table.read_partition(azure_rows.key(task))]
        if not rows:
            return self._read_empty(task), None, ()
        self._refuse_others(task, rows)
        try:
            offsets, written = azure_rows.whole(rows)
        except WireError as error:
            problem = f"table {self._table.name}, PartitionKey {azure_rows.key(task)!r}: {error}"
            return StoredCheckpoint(None, problem=problem), None, rows
        commit = None if written is None else written.commit or None
        return StoredCheckpoint(offsets, commit), written, rows

    def _read_empty(self, task: TaskName) -> StoredCheckpoint | None:
        found = self._table.read(_EMPTY, azure_rows.key(task))
        if found is None:
            self._not_empty.add(task)
            return None
        row = azure_rows.stored_row(found[0])
        self._refuse_others(task, [row])
        return StoredCheckpoint({}, (row.written and row.written.commit) or None)

    def _refuse_others(self, task: TaskName, rows: Sequence[StoredRow]) -> None:
        for row in rows:
            if row.written is not None and row.written.job != self._job.key:
                raise ConfigError(
                    f"the checkpoint of task {task!r} in table {self._table.name} of Azure Storage belongs to "
                    f"job {row.written.job}: the names that Samza gives to tables have no job.id and no other "
                    f"characters than letters and digits; set {CHECKPOINT_TABLE.name} for one of the jobs"
                )

    def write(self, checkpoints: Mapping[TaskName, StoredCheckpoint]) -> None:
        """See CheckpointStore: several tasks at a time; those that fail keep the checkpoint before."""
        ordered = sorted(checkpoints)
        list(self._pool.map(self._write_again, ordered, [checkpoints[task] for task in ordered]))

    def _write_again(self, task: TaskName, checkpoint: StoredCheckpoint) -> None:
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._write(task, checkpoint)
            except RowChanged:  # another program has removed a row since it was read
                if not left:
                    raise
            else:
                return

    def _write(self, task: TaskName, checkpoint: StoredCheckpoint) -> None:
        assert checkpoint.offsets is not None, "damage is read, never written"
        offsets = checkpoint.offsets
        _, before, rows = self._read(task)
        written = WrittenCheckpoint(
            self._job.key, uuid.uuid4().hex, checkpoint.commit or "", digest(offsets), len(offsets)
        )
        if not offsets:
            self._table.transact([azure_rows.encoded_empty(_EMPTY, task, written)])
            self._not_empty.discard(task)
        elif task not in self._not_empty:
            self._forget_empty(task)
        upserts = azure_rows.encoded(task, offsets, written, before, rows)
        kept = {row["RowKey"] for row in upserts}
        deletes = [
            {"PartitionKey": azure_rows.key(task), "RowKey": row.key} for row in rows if row.key not in kept
        ]
        for some, gone in _batches(upserts, deletes):
            self._table.transact(some, gone)
            failpoint("azure.rows-written")

    def _forget_empty(self, task: TaskName) -> None:
        """Before there are rows: with neither, the checkpoint log counts."""
        found = self._table.read(_EMPTY, azure_rows.key(task))
        if found is not None:
            self._table.delete(_EMPTY, azure_rows.key(task), etag=found[1])
        self._not_empty.add(task)

    def places(self, tasks: Collection[TaskName]) -> list[str]:
        """See CheckpointStore."""
        return [
            f"table {self._table.name} in Azure Storage, PartitionKey {azure_rows.key(task)!r}"
            for task, checkpoint in self.read(tasks).items()
        ]

    def delete(self, tasks: Collection[TaskName]) -> None:
        """See CheckpointStore."""
        for task in sorted(tasks):
            _, _, rows = self._read(task)
            for _, gone in _batches(
                [], [{"PartitionKey": azure_rows.key(task), "RowKey": row.key} for row in rows]
            ):
                self._table.transact([], gone)
            self._forget_empty(task)

    def close(self) -> None:
        """See CheckpointStore."""
        self._pool.shutdown(cancel_futures=True)
        self._storage.close()


def _batches(upserts: Sequence[Row], deletes: Sequence[Row]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Transactions of at most LARGEST_BATCH rows; what is deleted comes last."""
    operations = [(True, row) for row in upserts] + [(False, row) for row in deletes]
    for first in range(0, len(operations), LARGEST_BATCH):
        some = operations[first : first + LARGEST_BATCH]
        yield [row for is_upsert, row in some if is_upsert], [row for is_upsert, row in some if not is_upsert]
