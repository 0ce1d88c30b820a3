"""Which columns of embedded inputs a pipeline looks at: the others are read as null.

Spark asks a source in Python for all its columns, whatever the query uses. Each value passes a socket and is copied
into a row: for a query of `value` alone, the other five were 40 ms of 400 for 200,000 records. What is used is known
once `build` has returned, when the source is part of the plan already, so it reaches the source by a file, whose path
the source has as an option. To read the inputs once more with fewer columns took 70 ms of each start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from grete.spark import plans

USED = "grete.used"
"""The option of a stream with the path of the file that says what is used of it."""
_log = logging.getLogger("grete.container")
_CHOOSING = frozenset({"Aggregate", "Project"})
_PASSING = frozenset({"EventTimeWatermark", "Filter"})


def columns_used(spark: SparkSession, frames: Iterable[DataFrame], name: str) -> dict[str, Set[str]]:
    """Which columns the frames look at together, of each stream whose source wants to know.

    The option `name` of a stream is its name. As Spark's optimizer sees it: it moves filters and choices of columns
    down to the streams. Under any operator that is not known here to look at certain columns alone, all count. Spark
    lets no subquery look at a stream.
    """
    found: dict[str, Set[str]] = {}
    for frame in frames:
        plan = plans.analysed(frame)
        if all(plans.option(one, USED) is None for one in plans.streams(plan)):
            continue
        try:
            plan = spark._jsparkSession.sessionState().optimizer().execute(plan)
        except (PySparkException, Py4JError) as error:  # the query will say so when it starts
            _log.debug("the plan cannot be optimized yet: %s", error)
        for relation, columns in _below(plan, None):
            stream = str(plans.option(relation, name))
            found[stream] = found.get(stream, frozenset()) | columns
    return found


def _below(plan: Any, wanted: Set[int] | None) -> Iterator[tuple[Any, Set[str]]]:
    """The relations that want to know, each with its columns.

    `wanted` are the ids of columns that are looked at from above, None for all.
    """
    if plans.option(plan, USED) is not None:
        yield plan, {one.name() for one in _all(plan.output()) if wanted is None or _id(one) in wanted}
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
    return {_id(column) for column in _all(plan.references().toSeq())}


def _all(items: Any) -> Iterator[Any]:
    return (items.apply(i) for i in range(items.size()))


def _id(column: Any) -> int:
    return int(column.exprId().id())


def write(path: Path, columns: Mapping[str, Set[str]]) -> None:
    """Say to the sources that have this path what is used. To be called before they begin."""
    path.unlink(missing_ok=True)  # without a file all columns are read, with an older one too few
    if not columns:
        return
    path.write_text(json.dumps({stream: sorted(names) for stream, names in columns.items()}))


def read(path: Path, stream: str) -> Set[str] | None:
    """The columns that are used of a stream; None where that was not said: all then."""
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return None if stream not in known else frozenset(known[stream])
