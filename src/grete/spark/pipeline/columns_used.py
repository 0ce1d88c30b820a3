"""Which columns of embedded inputs a pipeline's query looks at: the others are read as null.

Spark asks a source in Python for all its columns, whatever the query uses. Each value passes a socket and is copied
into a row: for a query of `value` alone, the other five were 23 ms of 340 for 200,000 records. What is used is known
once `build` has returned, when the source is part of the plan already, so it reaches the source by a file, whose path
the source has as an option. To read the inputs once more with fewer columns took 70 ms of each start.

Looked at is the plan as it was analysed, before Spark's optimizer, which would say that less is used: it takes the
time of day for a constant, and drops the branches that are not taken at that moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from grete.spark import plans

USED = "grete.used"
"""The option of a stream with the path of the file that says what is used of it."""
_CHOOSING = frozenset({"Aggregate", "Project"})
_PASSING = frozenset({"EventTimeWatermark", "Filter", "SubqueryAlias"})


def columns_used(frame: DataFrame, name: str) -> dict[str, Set[str]]:
    """Which columns a query looks at, of each stream whose source wants to know; its option `name` is the key.

    A choice of columns says what it needs of those below it, and nothing above it sees others. So what neither the
    first `Project` or `Aggregate` above a stream nor the filters between them name has no effect on anything. Where
    another operator comes first all columns count, also one that a later Spark brings.
    """
    plan, found = plans.analysed(frame), dict[str, Set[str]]()
    if all(plans.option(one, USED) is None for one in plans.streams(plan)):
        return found  # as where all inputs are on brokers: to ask each operator takes longer
    for relation, columns in _below(plan, None):
        stream = str(plans.option(relation, name))
        found[stream] = found.get(stream, frozenset()) | columns
    return found


def _below(plan: Any, wanted: Set[int] | None) -> Iterator[tuple[Any, Set[str]]]:
    """The relations that want to know, each with its columns.

    `wanted` are the ids of columns that are looked at from above, None for all.
    """
    if plans.option(plan, USED) is not None:
        yield plan, {one.name() for one in plans.items(plan.output()) if wanted is None or _id(one) in wanted}
    operator = plans.name(plan)
    if operator in _CHOOSING:
        wanted = _looked_at(plan)
    elif operator in _PASSING and wanted is not None:
        wanted = wanted | _looked_at(plan)
    else:
        wanted = None
    for child in plans.children(plan):
        yield from _below(child, wanted)


def _looked_at(plan: Any) -> Set[int]:
    return {_id(column) for column in plans.items(plan.references().toSeq())}


def _id(column: Any) -> int:
    return int(column.exprId().id())


def write(path: Path, columns: Mapping[str, Set[str]]) -> None:
    """Say to the sources that have this path what is used. To be called before they begin."""
    path.unlink(missing_ok=True)  # without a file all columns are read, with an older one too few
    if not columns:
        return
    path.parent.mkdir(parents=True, exist_ok=True)  # with lineages elsewhere nothing has made it
    path.write_text(json.dumps({stream: sorted(names) for stream, names in columns.items()}))


def read(path: Path, stream: str) -> Set[str] | None:
    """The columns that are used of a stream; None where that was not said: all then."""
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return None if stream not in known else frozenset(known[stream])
