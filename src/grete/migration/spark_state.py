"""What becomes of the state of a Structured Streaming query that grete takes over.

Spark's state fits a plan by the order of its operators and the columns of what they keep. Only Spark can say whether
`build` makes such a plan: it is asked, with a copy of the query's logs in which no row is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from grete.assembly.dry_run import tried
from grete.config.settings import Settings
from grete.migration.note import Note, NoteSection, Outcome
from grete.migration.spark_query import OldQuery
from grete.model.ids import ContainerId
from grete.model.job import JobModel
from grete.model.startpoint import StateChoice
from grete.spark.lineage.decision import LineageInfo
from grete.spark.lineage.location import OnAsking
from grete.spark.lineage.parted_sources import Parts, parts_of
from grete.spark.lineage.query_files import copy_without_state
from grete.spark.lineage.without_session import open_lineages

READING_STATE = 'spark.streams.active; spark.read.format("statestore").load(CHECKPOINT)'
"""Reads Spark's state in a fresh session. Spark 4.2.0 makes the coordinator of its state stores, without which its
reader fails with CANNOT_LOAD_STATE_STORE (SPARK-58973), only when somebody asks for `streams`."""
_ONLY = ContainerId("0")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What `build` makes, as a lineage describes it, and why the query's state does not fit it; "" where it does.

    `parts` are the sources that take the place of the query's, where one of these reads several topics.
    """

    plan: str
    sources: tuple[str, ...]
    kept: str
    misfit: str
    parts: Parts | None = None


def rebuilt(query: OldQuery, settings: Settings, model: JobModel, home: Path, on_asking: OnAsking) -> Rebuilt:
    """Build the pipeline, and compare it with the query.

    Raises:
        ConfigError, ApplicationError, JobError: as `grete run --dry-run`.
        OSError: a file of the query cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="grete-query-") as folder:
        copy_without_state(query.folder, Path(folder))
        on_asking(f"the plan of {settings.job.application_class}")
        found = tried(settings, model, home, folder)["lineage"]
    sources = tuple(found["sources"])
    return Rebuilt(found["plan"], sources, found["kept"], found["misfit"], parts_of(query.folder, sources))


def cannot_keep(query: OldQuery, settings: Settings, model: JobModel) -> Iterator[Note]:
    """Why a query's state cannot be taken over, whatever `build` makes."""
    if not settings.job.is_pipeline:
        says, way_out = (
            "a StreamTask has stores of its own, and none of Spark's state",
            "write it as app.class",
        )
        yield _blocks("task.class", says, way_out)
    if len(model.containers) != 1:
        says = f"a query has one state, and the job would have {len(model.containers)} containers"
        yield _blocks("job.container.count", says, "set it to 1: a pipeline with state scales by executors")
    if query.committed < 0:
        says = "no batch of the query was committed, so it has no state to go on with"
        yield _blocks("state", says, "leave --state keep away")


def of_state(query: OldQuery, state: StateChoice | None, built: Rebuilt | None) -> Iterator[Note]:
    """What becomes of the query's state; of `keep` as far as it was compared."""
    if built is not None and built.misfit:
        says = f"the query does not fit what build makes: {built.misfit}"
        way_out = "write build as the query was: the same sources, operators and columns, in the same order"
        yield _blocks("state", says, way_out)
    elif built is not None:
        keeps = ", ".join(query.operators) or "nothing but its sources' offsets"
        says = f"it fits what build makes, and the job goes on with it: {keeps}; {_watermark(query)}"
        if not query.names_operators:
            says += (
                "; Spark before 4.0 did not write which operators these are: only their columns were compared"
            )
        if built.parts is not None:
            says += f"; each topic becomes a source of its own: {', '.join(filter(None, built.sources))}"
        yield Note(NoteSection.STORES, "state", Outcome.AS_IS, says)
    elif state is not StateChoice.KEEP and query.operators:
        yield _left(query, is_right=state is StateChoice.DISCARD)


def _left(query: OldQuery, *, is_right: bool) -> Note:
    return Note(
        NoteSection.STORES,
        "state",
        Outcome.NO_EFFECT if is_right else Outcome.BLOCKS,
        f"the query keeps state ({', '.join(query.operators)}; {_watermark(query)}), which stays with Spark: grete's "
        "first batch begins with empty state",
        ("" if is_right else "--state keep goes on with it, where build makes the query that it was; or ")
        + f"read it as a table ({READING_STATE}) and add it to the output or join it in build; or begin before what "
        "the state was made of: after --execute, grete checkpoint rewind --to timestamp:TIME --state discard, which "
        "repeats outputs" + ("" if is_right else ". --state discard says that empty state is right"),
    )


def _watermark(query: OldQuery) -> str:
    return f"the watermark is {query.watermark_ms} ms since 1970" if query.watermark_ms else "no watermark"


def _blocks(what: str, says: str, way_out: str) -> Note:
    return Note(NoteSection.STORES, what, Outcome.BLOCKS, says, way_out)


def begin_lineage(
    query: OldQuery,
    built: Rebuilt,
    starting: Mapping[str, int],
    settings: Settings,
    home: Path,
    on_asking: OnAsking,
) -> str:
    """Copy the query's checkpoint location into the job's first lineage; its id. Durable on return.

    Raises:
        ConfigError, FilesUnreachable, JobError: see `reach_address`.
        OSError: there is no room, or a file cannot be read.
    """
    place = settings.job.container_lineages(settings.job.id, home, _ONLY)
    with closing(open_lineages(place, settings, on_asking)) as lineages:
        goes_on = LineageInfo("", starting, built.plan, built.sources, built.kept)
        return lineages.start(goes_on, taken_over=query.folder, parts=built.parts).id
