"""What a pipeline's clone begins with: a copy of Spark's checkpoint location of each of its original's containers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from grete.checkpoint.task_commit import Commits
from grete.config.key_tables.job import LINEAGE_DIR
from grete.config.settings.spark import RETAINED
from grete.errors import JobError
from grete.failpoints import failpoint
from grete.model.ids import ContainerId
from grete.operations.job_handle import JobHandle
from grete.spark.lineage.decision import Checkpointed, LineageInfo
from grete.spark.lineage.files import current_checkpoint
from grete.spark.lineage.location import Location, OnAsking, open_location
from grete.spark.lineage.source_log import batches
from grete.spark.lineage.without_session import open_lineages


def copy_pipeline(
    original: JobHandle, clone: JobHandle, commits: Commits, on_asking: OnAsking, *, is_running: bool
) -> None:
    """Let the clone have the lineages and the checkpoints of its original, under names of lineages of its own.

    Asked for again it copies them again. The clone is at rest.

    Raises:
        JobError: the lineage of a checkpoint is not where this machine reads lineages; or the original has gone on so
            far meanwhile that Spark may have removed some of what was to be copied.
        ConfigError, FilesUnreachable, MissingExtra: see `open_location`.
        OSError: there is no room.
    """
    containers = sorted(set(original.assignments().values()))
    until = commits if is_running else None
    copies = {
        known: own
        for one in containers
        for known, own in _copied(original, clone, one, on_asking, until).items()
    }
    lost = sorted({commit.lineage for commit in commits.values() if commit.lineage} - copies.keys())
    if lost:
        place = original.settings.job.lineage_place(original.job, original.home)
        raise JobError(
            f"the checkpoints of {original.job.shown} belong to lineage {', '.join(lost)}, which is not in {place}: "
            f"clone it on the machine where it ran, or bring its files here"
        )
    clone.checkpoints.write(
        {
            task: replace(commit, lineage=copies.get(commit.lineage, ""), token="")
            for task, commit in commits.items()
        }
    )


def _copied(
    original: JobHandle,
    clone: JobHandle,
    container: ContainerId,
    on_asking: OnAsking,
    commits: Commits | None,
) -> dict[str, str]:
    """The id of the copy by that of the container's lineage; empty where it has none. With `commits` as of these."""
    before, after = (
        one.settings.job.container_lineages(one.job, one.home, container) for one in (original, clone)
    )
    found = current_checkpoint(open_location(before, LINEAGE_DIR.name, original.settings, on_asking))
    if found is None:
        return {}
    known, checkpoint = found
    until = None if commits is None else _last_batch(known, commits)
    with closing(open_lineages(after, clone.settings, on_asking)) as lineages:
        try:
            own = lineages.start(known, taken_over=checkpoint, until=until)
        except OSError:
            _check_kept(original, checkpoint, until)
            raise
    _check_kept(original, checkpoint, until)
    failpoint("clone.lineage-copied")
    return {known.id: own.id}


def _last_batch(lineage: LineageInfo, commits: Commits) -> int:
    """The last one of the lineage that a checkpoint is of; -1 for none."""
    checkpointed = Checkpointed.of(lineage, commits.values())
    return -1 if checkpointed is None else checkpointed.batch


def _check_kept(original: JobHandle, checkpoint: Location, until: int | None) -> None:
    """Whether Spark has kept all that was to be copied: it removes what is of no use for its last batches."""
    if until is None:
        return
    if not checkpoint.is_dir():
        raise JobError(
            f"{original.job.shown} has changed its state's partitions or inputs meanwhile: clone it again"
        )
    kept = original.settings.spark.retained_batches
    went_on = max(batches(checkpoint / "offsets"), default=until) - until
    if went_on > kept - 2:
        raise JobError(
            f"{original.job.shown} has gone on by {went_on} batches while its state was copied, and keeps what is "
            f"needed for {kept} ({RETAINED}): stop it for as long, or let it keep more"
        )
