"""The results of a task's share of a batch: as its worker has them, and as the driver gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grete.arrow import pa
from grete.tasks.spec import TaskProgress, TaskReport
from grete.tasks.stores.file import StoreFile

Output = tuple[str, int, pa.RecordBatch]
"""(stream, partition, records)."""


@dataclass(frozen=True, slots=True)
class StoreChange:
    """The changes of a batch in one store, as columns and packed, for a partition of its changelog."""

    store: str
    stream: str
    partition: int
    records: pa.RecordBatch
    data: bytes
    file: StoreFile

    def keep(self, token: str, position: int) -> None:
        """Keep it pending in the store's file; `position` is where the changelog ends once it is committed."""
        self.file.set_pending(token, position, self.data)


@dataclass(frozen=True, slots=True)
class Processed:
    """One attempt at a task's share of a batch, visible to no reader yet. `report` has no positions so far.

    What is in `elsewhere` goes to other systems than the job's own, before the commit.
    """

    report: TaskReport
    progress: TaskProgress
    outputs: Sequence[Output]
    changes: Sequence[StoreChange]
    elsewhere: Sequence[Output] = ()
