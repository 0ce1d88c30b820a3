"""The face that every sink of a DataFrame pipeline has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from grete.systems.commit_group import SegmentWrite


@dataclass(frozen=True, slots=True)
class BatchId:
    """A micro-batch: the same when it is repeated, and no other's after a rewind or in another lineage."""

    lineage: str
    number: int

    def __str__(self) -> str:
        return f"{self.lineage}-{self.number}"


class Sink(Protocol):
    """One output. Called by one thread, batch after batch; a batch whose checkpoint was not written comes again."""

    def write(self, rows: DataFrame, batch: BatchId) -> Sequence[SegmentWrite]:
        """Write a batch's rows, durable on return; or give back what is to be part of the checkpoint's transaction.

        Raises:
            GreteError: what was not written, where, and the way out.
        """

    def close(self) -> None:
        """Give back what is held."""
