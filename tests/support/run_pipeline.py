"""A pipeline that has run in two containers, by files that Spark would have written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.config.settings import Settings
from grete.coordinator.assignment_records import ssp_key
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_TASK_CONTAINER, SET_TASK_PARTITION
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.spark.lineage.decision import LineageInfo
from grete.spark.lineage.files import LineageDirectory
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


class RunPipeline:
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
                begun = lineages.start(
                    LineageInfo("", {f"local.in.{p}": p}, f"plan, {p}", ("local.in", ""), "a count")
                )
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
