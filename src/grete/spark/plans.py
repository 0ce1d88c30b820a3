"""Spark's logical plans, looked at and rebuilt through Py4J: what its Python interface has no words for.

Only analysed plans of classic sessions. A rebuilt plan keeps the ids of its columns, so that what stands above a node
goes on to find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from grete.spark.jvm import context_of_process, java_seq, java_session, jvm_of, query_execution

_RELATIONS = ("StreamingRelation", "StreamingRelationV2")
OF_EACH_ROW = frozenset(
    {
        "DeserializeToObject",
        "Filter",
        "Generate",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "ResolvedHint",
        "SerializeFromObject",
        "SubqueryAlias",
        "TypedFilter",
    }
)
"""Operators over one input that make the same of a row wherever they are computed."""


def analysed(frame: DataFrame) -> Any:
    """The plan that Spark has made of a frame: names resolved, nothing moved."""
    return query_execution(frame).analyzed()


def name(plan: Any) -> str:
    """The operator's name, as `Aggregate`."""
    return str(plan.getClass().getSimpleName())


def children(plan: Any) -> list[Any]:
    """The operator's inputs, from left to right."""
    return list(items(plan.children()))


def items(sequence: Any) -> Iterator[Any]:
    """What a sequence of Scala's holds."""
    return (sequence.apply(i) for i in range(sequence.size()))


def leaves(plan: Any) -> Iterator[Any]:
    """The operators without inputs, from left to right."""
    below = children(plan)
    for child in below:
        yield from leaves(child)
    if not below:
        yield plan


def is_join_with_a_table(plan: Any) -> bool:
    """Whether rows of one stream are joined with what is the same everywhere."""
    return name(plan) == "Join" and sum(child.isStreaming() for child in children(plan)) == 1


def streams(plan: Any) -> Iterator[Any]:
    """The relations that read streams, in the order in which Spark lists them in its logs of offsets."""
    if name(plan) in _RELATIONS:
        yield plan
    for child in children(plan):
        yield from streams(child)


def option(relation: Any, key: str) -> str | None:
    """An option with which a stream is read; None when it has none, or is read by an interface of before Spark 3."""
    if name(relation) != "StreamingRelationV2":
        return None
    value = relation.extraOptions().get(key)
    return None if value is None else str(value)


def replaced(plan: Any, found: Callable[[Any], Any | None]) -> Any:
    """The plan with other nodes where `found` gives one; below these nothing is looked for."""
    other = found(plan)
    if other is not None:
        return other
    old = children(plan)
    new = [replaced(child, found) for child in old]
    if all(before is after for before, after in zip(old, new, strict=True)):
        return plan
    return plan.withNewChildren(java_seq(_jvm(), new))


def without_views(plan: Any) -> Any:
    """The plan with what stands behind temporary views in their place; a view has the columns of what it shows."""

    def behind(one: Any) -> Any | None:
        return without_views(one.child()) if name(one) in ("SubqueryAlias", "View") else None

    return replaced(plan, behind)


def renamed(plan: Any, like: Any) -> Any:
    """The plan with the columns of `like`, one by one: their names and their ids."""
    jvm = _jvm()
    own, theirs = plan.output(), like.output()
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    columns = [
        expressions.Alias(
            own.apply(i),
            theirs.apply(i).name(),
            theirs.apply(i).exprId(),
            theirs.apply(i).qualifier(),
            jvm.scala.Option.empty(),
            java_seq(jvm, []),
        )
        for i in range(own.size())
    ]
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(java_seq(jvm, columns), plan)


def frame_of(plan: Any, session: SparkSession) -> DataFrame:
    """The frame of a plan, in this session: the one that is active in the process may be somebody else's."""
    return DataFrame(_jvm().org.apache.spark.sql.classic.Dataset.ofRows(java_session(session), plan), session)


def _jvm() -> Any:
    context = context_of_process()
    assert context is not None, "plans are of a session"
    return jvm_of(context)
