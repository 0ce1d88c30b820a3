"""The face that every sink of a DataFrame pipeline has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pyspark.sql import DataFrame

from grete.api import Batch
from grete.systems.commit_group import SegmentWrite


class Sink(Protocol):
    """One output. Called by one thread, batch after batch; a batch whose checkpoint was not written comes again."""

    def write(self, rows: DataFrame, batch: Batch) -> Iterable[SegmentWrite]:
        """Write a batch's rows, durable on return; or give back what is to be part of the checkpoint's transaction.

        Rows that are there already are computed all the same, for the sake of Spark's state.

        Raises:
            GreteError: what was not written, where, and the way out.
        """

    def close(self) -> None:
        """Give back what is held."""


def compute_only(rows: DataFrame) -> None:
    """Compute the rows for the sake of Spark's state, and write nothing."""
    rows.write.format("noop").mode("overwrite").save()
