"""Checks of a DataFrame pipeline's plan before its first batch. The plan is known only in Spark.

Each container reads its own stream partitions and sees no row of another. So what looks at several rows at once
(aggregations, joins of streams, deduplication) is right in one container only, and the rows that it would send from
two look as good as right ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from grete.errors import ConfigError

_ROW_BY_ROW = frozenset(
    {
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "DeserializeToObject",
        "EventTimeWatermark",
        "Expand",  # of an unpivot; grouping sets have an Aggregate above it
        "Filter",
        "Generate",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "ResolvedHint",
        "Sample",
        "SerializeFromObject",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
        "UnresolvedHint",
        "View",
        "WithCTE",
    }
)
"""Spark's operators that make of each row what they would make of it alone. Whatever is not listed is taken for one
that does not: an operator that a later Spark brings is refused rather than wrong."""
_SHOWN = 160


def check_build(built: object, application: str) -> DataFrame:
    """The frame that `build` returned, when it is one streaming DataFrame that uses one input once.

    Raises:
        ConfigError: naming what it is instead, and the way out.
    """
    named = f"app.class: {application}.build"
    if isinstance(built, Mapping):
        outputs = ", ".join(map(repr, built))
        raise ConfigError(
            f"{named} returned a dict of outputs ({outputs}): a pipeline has one output in this version; return the "
            f"DataFrame of `output`, and write the others with pipelines of their own"
        )
    if not isinstance(built, DataFrame):
        raise ConfigError(f"{named} has to return a DataFrame, it returned {type(built).__name__}")
    uses = _streams_used(built)
    if uses == 0:
        raise ConfigError(f"{named} returned a DataFrame that reads none of its inputs")
    if uses > 1:
        raise ConfigError(
            f"{named} uses streams {uses} times: in this version a pipeline reads one input, and uses it once. "
            f"Bring several streams into one with a StreamTask first; where one input is used twice, say it in one "
            f"pass (conditions in columns, explode of an array), or write two pipelines"
        )
    return built


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


def gathers(built: DataFrame) -> str | None:
    """The first operator, from the output on, that looks at several rows of a stream at once; None without one.

    A join of a stream with a table is none: every container has the whole table.
    """
    for plan in _operators(built):
        name = _name(plan)
        is_with_a_table = name == "Join" and sum(child.isStreaming() for child in _children(plan)) == 1
        is_narrow = name == "Repartition" and not plan.shuffle()
        if name not in _ROW_BY_ROW and not is_with_a_table and not is_narrow:
            text = " ".join(str(plan.simpleString(25)).removeprefix("~").split())
            text = text if text.startswith(name) else f"{name}: {text}"
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return None


def _streams_used(built: DataFrame) -> int:
    """How many sources Spark would make: one wherever a stream is used, also through the same common table."""
    common = {plan.id(): plan for plan in _operators(built) if _name(plan) == "CTERelationDef"}

    def uses(plan: Any) -> int:
        match _name(plan):
            case "StreamingRelation" | "StreamingRelationV2":
                return 1
            case "CTERelationRef":
                return uses(common[plan.cteId()].child()) if plan.cteId() in common else 0
            case "WithCTE":
                return uses(plan.plan())
            case _:
                return sum(map(uses, _children(plan)))

    return uses(_analysed(built))


def _operators(built: DataFrame) -> Iterator[Any]:
    """The operators over streams of the analysed plan, the output's first. A table's are the same everywhere."""
    found = [_analysed(built)]
    while found:
        plan = found.pop()
        if plan.isStreaming():
            yield plan
            found += reversed(_children(plan))


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(i) for i in range(children.size())]


def _analysed(built: DataFrame) -> Any:
    return built._jdf.queryExecution().analyzed()


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
