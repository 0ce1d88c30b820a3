"""Checks of a DataFrame pipeline's plan before its first batch. The plan is known only in Spark.

Each container reads its own stream partitions and sees no row of another. So what looks at several rows at once
(aggregations, joins of streams, deduplication) is right in one container only, and the rows that it would send from
two look as good as right ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from grete.errors import ConfigError
from grete.spark.plans import OF_EACH_ROW, analysed, children, is_join_with_a_table, name

_ROW_BY_ROW = OF_EACH_ROW | {
    "CTERelationDef",
    "CTERelationRef",
    "CollectMetrics",
    "EventTimeWatermark",
    "Expand",  # of an unpivot; grouping sets have an Aggregate above it
    "Sample",
    "StreamingRelation",
    "StreamingRelationV2",
    "Union",
    "UnresolvedHint",
    "View",
    "WithCTE",
}
"""Spark's operators that make of each row what they would make of it alone. Whatever is not listed is taken for one
that does not: an operator that a later Spark brings is refused rather than wrong."""
_SHOWN = 160


def check_containers(built: DataFrame, containers: int) -> None:
    """More than one container is right only when each row is treated alone.

    Raises:
        ConfigError: naming the operator that shuffles rows or keeps state.
    """
    operator = gathers(built)
    if operator is None or containers <= 1:
        return
    raise ConfigError(
        f"job.container.count={containers}: the pipeline's plan shuffles rows or keeps state ({operator}), and each "
        f"container would do that with its own partitions only, so results would be wrong. Set "
        f"job.container.count=1; such a pipeline scales by Spark's executors (spark.master, spark.executor.*)"
    )


_STATELESS = frozenset({"Repartition", "RepartitionByExpression", "RebalancePartitions"})
"""Operators that look at several rows, and keep none for the next batch."""


def keeps_state(built: DataFrame) -> str | None:
    """The first operator that keeps something of a batch for the next one; None without one."""
    return _first_operator(built, _ROW_BY_ROW | _STATELESS)


def gathers(built: DataFrame) -> str | None:
    """The first operator, from the output on, that looks at several rows of a stream at once; None without one.

    A join of a stream with a table is none: every container has the whole table.
    """
    return _first_operator(built, _ROW_BY_ROW)


def _first_operator(built: DataFrame, harmless: frozenset[str]) -> str | None:
    for plan in _operators(built):
        operator = name(plan)
        is_narrow = operator == "Repartition" and not plan.shuffle()
        if operator not in harmless and not is_join_with_a_table(plan) and not is_narrow:
            text = " ".join(str(plan.simpleString(25)).removeprefix("~").split())
            text = text if text.startswith(operator) else f"{operator}: {text}"
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return None


def _operators(built: DataFrame) -> Iterator[Any]:
    """The operators over streams of the analysed plan, the output's first. A table's are the same everywhere."""
    found = [analysed(built)]
    while found:
        plan = found.pop()
        if plan.isStreaming():
            yield plan
            found += reversed(children(plan))
