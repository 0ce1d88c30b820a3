"""What a pipeline's clone begins with, by files that Spark would have written."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.run_pipeline import CLONE, CONFIG, JOB, RunPipeline

from grete.checkpoint.task_commit import TaskCommit
from grete.clock import SystemClock
from grete.config.clone import clone_config
from grete.config.settings import Settings
from grete.errors import JobError
from grete.metadata.job_state import read_origin
from grete.model.ids import SystemStreamPartition, TaskName
from grete.operations import open_job
from grete.operations.clone_start import begin_at_checkpoint
from grete.spark.lineage import files as files_of_lineages
from grete.spark.lineage.files import current_lineage
from grete.spark.lineage.query_files import copy_all
from grete.systems.local.system import LocalSystem


@pytest.fixture
def original(home: Path) -> Iterator[RunPipeline]:
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        yield RunPipeline(home, system)


def clone() -> None:
    begin_at_checkpoint(JOB, clone_config(Settings.of(CONFIG), CLONE), lambda address: None)


def test_each_container_has_its_lineage_under_another_name_and_its_checkpoints_say_so(
    original: RunPipeline,
) -> None:
    original.commit(*(one.id for one in original.lineages))
    clone()
    with open_job(CLONE) as handle:
        commits, origin = handle.checkpoints.read(), read_origin(handle.stream)
    assert origin is not None
    for p, before in enumerate(original.lineages):
        own = current_lineage(original.place(CLONE, p))
        assert own is not None
        assert own.id != before.id
        assert (own.starting_offsets, own.plan, own.sources, own.kept) == (
            before.starting_offsets,
            before.plan,
            before.sources,
            before.kept,
        )
        assert (original.place(CLONE, p) / own.id / "spark" / "metadata").read_text() == f"of {p}"
        assert (original.place(JOB, p) / before.id / "spark" / "metadata").read_text() == f"of {p}"
        commit = commits[TaskName(f"Partition {p}")]
        assert (commit.lineage, commit.batch_id, commit.token) == (own.id, 7, "")
        assert commit.has_foreign_sources


def test_a_checkpoint_that_was_moved_is_taken_over_without_a_lineage(original: RunPipeline) -> None:
    original.commit(original.lineages[0].id, "")
    clone()
    with open_job(CLONE) as handle:
        commits = handle.checkpoints.read()
    assert commits[TaskName("Partition 0")].lineage
    assert commits[TaskName("Partition 1")] == TaskCommit(
        {SystemStreamPartition("local", "in", 1): "4"}, batch_id=7, has_foreign_sources=True
    )


def test_a_lineage_that_is_not_here_is_named_and_the_clone_is_not_made(original: RunPipeline) -> None:
    original.commit(original.lineages[0].id, "elsewhere")
    with pytest.raises(
        JobError, match=r"belong to lineage elsewhere, which is not in .*: clone it on the machine"
    ):
        clone()
    original.commit(*(one.id for one in original.lineages))
    clone()


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def spark_of(place: Path, names: Iterable[str]) -> None:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)


OF_BATCH_7 = {
    "metadata",
    *(f"{log}/{number}" for log in ("offsets", "commits") for number in (5, 6, 7)),
    "sources/0/0",
    "sources/1/12",
    "state/0/1/7.delta",
    "state/0/1/8.delta",
    "state/0/1/.8.delta.crc",
    "state/0/1/left-keyToNumValues/8_c0ffee.zip",
    "state/0/1/SSTs/000012-8c.sst",
    "state/0/_metadata/metadata",
}
LATER = {
    "offsets/8",
    "offsets/.9.0a.tmp",
    "commits/8",
    "state/0/1/9.delta",
    "state/0/1/.9.delta.crc",
    "state/0/1/left-keyToNumValues/9_c0ffee.zip",
    "state/0/1/.8.delta.0a.TID3.tmp",
}


def test_of_a_pipeline_that_runs_the_copy_ends_with_the_batch_of_the_checkpoint(
    original: RunPipeline,
) -> None:
    """As a crash would have left it, so that Spark goes on from there."""
    for p, lineage in enumerate(original.lineages):
        spark_of(original.place(JOB, p) / lineage.id / "spark", OF_BATCH_7 | LATER)
    original.commit(*(one.id for one in original.lineages))
    with open_job(JOB) as handle, handle.election.stopped("it runs"):
        clone()
    own = current_lineage(original.place(CLONE, 0))
    assert own is not None
    assert files(original.place(CLONE, 0) / own.id / "spark") == OF_BATCH_7


def test_a_pipeline_that_has_gone_on_too_far_meanwhile_is_to_be_stopped(original: RunPipeline) -> None:
    """Spark may have removed what the copy needs."""
    spark_of(original.place(JOB, 0) / original.lineages[0].id / "spark", (f"offsets/{n}" for n in range(17)))
    original.commit(*(one.id for one in original.lineages))
    with open_job(JOB) as handle, handle.election.stopped("it runs"):
        with pytest.raises(JobError, match=r"gone on by 9 batches .* needed for 10 .*: stop it for as long"):
            clone()
        handle.stream.change_config({"spark.sql.streaming.minBatchesToRetain": "11"}, run_id="run-2")
        clone()


def test_a_pipeline_whose_state_was_moved_meanwhile_is_to_be_cloned_again(
    original: RunPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that was copied is gone by then, and nobody knows how much of it is in the copy."""
    original.commit(*(one.id for one in original.lineages))

    def copied_and_gone(query: Path, to: Path, **more: object) -> None:
        copy_all(query, to)
        shutil.rmtree(query)

    monkeypatch.setattr(files_of_lineages, "copy_all", copied_and_gone)
    refused = pytest.raises(JobError, match=r"state's partitions or inputs meanwhile: clone it again")
    with open_job(JOB) as handle, handle.election.stopped("it runs"), refused:
        clone()
