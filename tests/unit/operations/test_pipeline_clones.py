"""What a pipeline's clone begins with, by files that Spark would have written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.clock import SystemClock
from grete.config.clone import clone_config
from grete.config.settings import Settings
from grete.coordinator.assignment_records import ssp_key
from grete.errors import JobError
from grete.metadata.job_state import read_origin
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_TASK_CONTAINER, SET_TASK_PARTITION
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.operations.clone_start import begin_at_checkpoint
from grete.spark.lineage.decision import LineageInfo
from grete.spark.lineage.files import LineageDirectory, current_lineage
from grete.systems.local.system import LocalSystem

JOB, CLONE = JobId("counts"), JobId("counts-2")
CONFIG = {
    "job.name": "counts",
    "app.class": "counts:Counts",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "job.coordinator.system": "local",
    "job.container.count": "2",
}


class Original:
    """A pipeline that has run in two containers, each with a task and a lineage."""

    def __init__(self, home: Path, system: LocalSystem) -> None:
        self._home, self._system = home, system
        system.create_stream(StreamSpec("in", 2))
        system.create_stream(StreamSpec("out", 2))
        self.lineages: list[LineageInfo] = []
        with open_job(JOB, must_exist=False) as handle:
            handle.stream.write_config(CONFIG, run_id="run-1")
            reads = {ssp_key(SystemStreamPartition("local", "in", p)): f'["Partition {p}"]' for p in (0, 1)}
            handle.stream.put(SET_TASK_PARTITION, reads)
            handle.stream.put(SET_TASK_CONTAINER, {f"Partition {p}": str(p) for p in (0, 1)})
        for p in (0, 1):
            with closing(LineageDirectory(self.place(JOB, p))) as lineages:
                begun = lineages.start({f"local.in.{p}": p}, f"plan, {p}", ("local.in", ""), "a count")
                (lineages.spark_checkpoint(begun) / "metadata").write_bytes(b"of %d" % p)
            self.lineages.append(begun)

    def place(self, job: JobId, container: int) -> Path:
        found = Settings.of(CONFIG).job.container_lineages(job, self._home, ContainerId(str(container)))
        assert isinstance(found, Path)
        return found

    def commit(self, *lineages: str) -> None:
        commits = {
            TaskName(f"Partition {p}"): TaskCommit(
                {SystemStreamPartition("local", "in", p): "4"}, one, 7, "attempt", has_foreign_sources=True
            )
            for p, one in enumerate(lineages)
        }
        log = self._system.checkpoint_log(checkpoint_log_name(JOB))
        log.append(commit_entries(commits, grouper="GroupByPartitionFactory"))


@pytest.fixture
def original(home: Path) -> Iterator[Original]:
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        yield Original(home, system)


def clone() -> None:
    begin_at_checkpoint(JOB, clone_config(Settings.of(CONFIG), CLONE), lambda address: None)


def test_each_container_has_its_lineage_under_another_name_and_its_checkpoints_say_so(
    original: Original,
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


def test_a_checkpoint_that_was_moved_is_taken_over_without_a_lineage(original: Original) -> None:
    original.commit(original.lineages[0].id, "")
    clone()
    with open_job(CLONE) as handle:
        commits = handle.checkpoints.read()
    assert commits[TaskName("Partition 0")].lineage
    assert commits[TaskName("Partition 1")] == TaskCommit(
        {SystemStreamPartition("local", "in", 1): "4"}, batch_id=7, has_foreign_sources=True
    )


def test_a_lineage_that_is_not_here_is_named_and_the_clone_is_not_made(original: Original) -> None:
    original.commit(original.lineages[0].id, "elsewhere")
    with pytest.raises(
        JobError, match=r"belong to lineage elsewhere, which is not in .*: clone it on the machine"
    ):
        clone()
    original.commit(*(one.id for one in original.lineages))
    clone()
