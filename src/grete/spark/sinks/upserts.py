"""Rows that take the place of those with the same keys in a table, and rows that say that there is none any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from grete.config.key_tables.outputs import OUTPUT_KEYS, OUTPUT_ORDER_BY
from grete.config.settings.outputs import DELTA, JDBC, OutputSettings
from grete.errors import ApplicationError, ConfigError

DELETED = "__deleted"
"""The column of what `one_a_key` gives that is 1 where the table is to have no such row, else 0."""
_ROW, _COUNT = "__row", "__count"


@dataclass(frozen=True, slots=True)
class Upsert:
    """How the rows of an output find those whose place they take."""

    output: str
    keys: Sequence[str]
    order_by: str | None
    deleted: str | None

    @classmethod
    def of(cls, settings: OutputSettings) -> Upsert | None:
        """That of an output that has keys."""
        keys = settings.key_columns
        return cls(settings.name, keys, settings.order_by, settings.deleted_column) if keys else None

    def columns(self, rows: DataFrame) -> list[str]:
        """The columns that the table has.

        Raises:
            ApplicationError: a column that the configuration names is not among the rows'.
        """
        named = [*self.keys, *filter(None, (self.order_by, self.deleted))]
        if missing := [name for name in named if name not in rows.columns]:
            raise ApplicationError(
                f"outputs.{self.output}: build gives it no column {', '.join(missing)}; it has "
                f"{', '.join(rows.columns)}"
            )
        return [name for name in rows.columns if name != self.deleted]

    def one_a_key(self, rows: DataFrame) -> DataFrame:
        """The row of each key, with `DELETED` as the last column: of several the one that is last by the order.

        What cannot be decided is an error while rows are computed: a key that is null, several rows without order.

        Raises:
            ApplicationError: see `columns`.
        """
        columns = [F.col(_quoted(name)) for name in self.columns(rows)]
        gone = F.lit(0)
        if self.deleted is not None:
            gone = F.coalesce(F.col(_quoted(self.deleted)).cast("int"), F.lit(0))
        given = F.struct(*columns, gone.alias(DELETED))
        order = None if self.order_by is None else F.col(_quoted(self.order_by))
        chosen = F.any_value(given) if order is None else F.max_by(given, order)
        keys = [F.col(_quoted(key)) for key in self.keys]
        found = rows.groupBy(*keys).agg(chosen.alias(_ROW), F.count(F.lit(1)).alias(_COUNT))
        problem = self._problem(keys)
        checked = found.where(F.when(problem.isNull(), F.lit(True)).otherwise(F.raise_error(problem)))
        return checked.select(f"{_ROW}.*")

    def _problem(self, keys: Sequence[Column]) -> Column:
        is_null = reduce(Column.__or__, (key.isNull() for key in keys))
        shown = ", ".join(self.keys)
        words = {
            f"a row has no {shown}, which is its key": is_null,
            f"{OUTPUT_ORDER_BY.named(self.output)} is null in a row": F.col(_ROW).isNull(),
        }
        if self.order_by is None:
            words[
                f"several rows of a batch have the same {shown}, and nothing says which of them counts: set "
                f"{OUTPUT_ORDER_BY.named(self.output)} to a column that grows, or make them one in build"
            ] = F.col(_COUNT) > 1
        kind = f"{ApplicationError.__module__}.{ApplicationError.__name__}"
        named = OUTPUT_KEYS.named(self.output)
        return F.coalesce(*(F.when(when, F.lit(f"{kind}: {named}: {text}")) for text, when in words.items()))


def check_upsert(settings: OutputSettings, rows: DataFrame, *, replaces: bool) -> None:
    """Refuse keys that an output cannot have, before the first batch would fail by them.

    Raises:
        ConfigError: it is not changed row by row, or has what goes with keys without them.
        ApplicationError: see `Upsert.columns`.
    """
    upsert, named = Upsert.of(settings), OUTPUT_KEYS.named(settings.name)
    if upsert is None:
        if settings.order_by is not None or settings.deleted_column is not None:
            raise ConfigError(
                f"{named} is not set: without it rows are added, and nothing is ordered or deleted"
            )
        return
    if replaces or settings.format not in (DELTA, JDBC):
        what = 'output_mode "complete" writes all rows anew' if replaces else "files are added, not changed"
        raise ConfigError(f"{named} is for tables that are changed by rows: {what}")
    upsert.columns(rows)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
