"""Several outputs of one pipeline out of one query: what they have in common is computed once.

A streaming query has one plan. So the outputs are cut in two: below is what they share, down to the streams, and what
keeps state; this is the query. Above are operators that look at one row at a time; they are put on the rows of each
batch. Outputs that share nothing (of two inputs, of two aggregations) make one query as well, whose rows say whose
they are.

    shared = Shared.of({"local.errors": errors, "local.all": parsed})
    shared.frame.writeStream.foreachBatch(...)      # then, in each batch:
    shared.of_batch(batch)                          # {"local.errors": DataFrame, "local.all": DataFrame}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from grete.spark import plans

_TIMES = ("current_timestamp", "current_date", "localtimestamp", "now(", "unix_timestamp(", "current_time")
"""In a query, these are the batch's, also when it is repeated."""
_PART = "__part"


@dataclass(frozen=True, slots=True)
class Shared:
    """The query of some outputs. `parts` are its plans, each with the outputs that are made of its rows."""

    frame: DataFrame
    parts: Sequence[tuple[Any, Mapping[str, Any]]]

    @classmethod
    def of(cls, outputs: Mapping[str, DataFrame]) -> Shared:
        """Cut the outputs; a single one is the query as it is."""
        if len(outputs) == 1:
            return cls(next(iter(outputs.values())), [])
        found: list[tuple[Any, dict[str, Any]]] = []
        trunks: dict[str, list[Any]] = {}
        for name, frame in outputs.items():
            trunks[name] = _trunk(plans.analysed(frame))
            root = trunks[name][-1]
            group = next((members for known, members in found if known.equals(root)), None)
            if group is None:
                found.append((root, group := {}))
            group[name] = trunks[name][0]
        parts = [(_highest([trunks[name] for name in members]), members) for _, members in found]
        session = next(iter(outputs.values())).sparkSession
        return cls(_query([plan for plan, _ in parts], session), parts)

    def of_batch(self, batch: DataFrame, names: Sequence[str]) -> dict[str, DataFrame]:
        """Each output's rows of a batch, given the rows of the query."""
        if not self.parts:
            return {names[0]: batch}
        found: dict[str, DataFrame] = {}
        for index, (plan, members) in enumerate(self.parts):
            rows = batch
            if len(self.parts) > 1:
                rows = batch.where(F.col(_PART) == index).select(f"{_PART}{index}.*")
            below = plans.renamed(plans.analysed(rows), plan)
            found |= {name: self._on(below, plan, top) for name, top in members.items()}
        return found

    def _on(self, rows: Any, part: Any, top: Any) -> DataFrame:
        """An output with a batch's rows in the place of the query's part."""
        plan = plans.replaced(top, lambda one: rows if one.equals(part) else None)
        return plans.frame_of(plan, self.frame.sparkSession)


def _trunk(plan: Any) -> list[Any]:
    """The operators from the output down to the first that belongs into the query."""
    found = [plan]
    while (below := _input_of(found[-1])) is not None:
        found.append(below)
    return found


def _input_of(plan: Any) -> Any | None:
    """The stream under an operator that can be put on a batch; None when it belongs into the query."""
    if plans.name(plan) not in plans.OF_EACH_ROW and not plans.is_join_with_a_table(plan):
        return None
    streams = [child for child in plans.children(plan) if child.isStreaming()]
    text = str(plan.simpleString(1_000)).lower()
    return None if len(streams) != 1 or any(word in text for word in _TIMES) else streams[0]


def _highest(trunks: Sequence[Sequence[Any]]) -> Any:
    """The highest operator that all outputs of a group have in common."""
    first, *others = trunks
    return next(plan for plan in first if all(any(one.equals(plan) for one in other) for other in others))


def _query(parts: Sequence[Any], session: SparkSession) -> DataFrame:
    """One frame of all parts. With several, a row has the columns of its part in a struct, and nulls for the rest."""
    frames = [plans.frame_of(plan, session) for plan in parts]
    if len(frames) == 1:
        return frames[0]
    frames = [frame.toDF(*(f"_{i}" for i in range(len(frame.columns)))) for frame in frames]
    structs = [F.struct(*frame.columns) for frame in frames]
    types = [
        frame.select(struct.alias("s")).schema["s"].dataType
        for frame, struct in zip(frames, structs, strict=True)
    ]

    def tagged(index: int) -> DataFrame:
        columns = [
            (structs[i] if i == index else F.lit(None).cast(each)).alias(f"{_PART}{i}")
            for i, each in enumerate(types)
        ]
        return frames[index].select(F.lit(index).alias(_PART), *columns)

    return reduce(DataFrame.unionAll, map(tagged, range(len(frames))))
