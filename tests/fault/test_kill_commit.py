"""kill -9 at every step of the commit's transaction, again and again: all of a batch is there once, or nothing of it.

The committer is a program of its own that does what a container's driver does with a batch, without Spark: outputs,
changelog and checkpoint of two tasks in one commit group, from where the checkpoint log says that it stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.clock import SystemClock
from grete.failpoints import POINTS
from grete.systems.base import StreamSpec
from grete.systems.local import LocalSystem

pytestmark = pytest.mark.fault

BATCHES = 40
STEPS = [
    name
    for name in POINTS
    if name.split(".")[0] in ("commit", "log", "file") and name not in ("commit.before", "commit.after")
]
COMMITTER = """
import sys
from pathlib import Path
from grete.checkpoint.task_commit import TaskCommit, commit_entries, read_commits
from grete.clock import SystemClock
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition, TaskName
from grete.systems.base import CommitGroup, SegmentWrite
from grete.systems.local import LocalSystem
from grete.systems.local_segments import pack

system = LocalSystem(Path(sys.argv[1]), SystemClock())
tasks = [TaskName(f"Partition {number}") for number in range(2)]
found = read_commits(system.checkpoint_log("checkpoints").read())
first = 1 + max((commit.batch_id for commit in found.values()), default=-1)
for batch in range(first, int(sys.argv[2])):
    data = pack([b"batch"], [b"%d" % batch], [0])
    segments = [SegmentWrite(name, number, 1, data) for name in ("out", "changelog") for number in range(2)]
    commits = {
        task: TaskCommit({SystemStreamPartition("local", "in", number): str(batch)}, "lineage", batch)
        for number, task in enumerate(tasks)
    }
    entries = commit_entries(commits, grouper="g")
    system.commit(CommitGroup([Fence("container", 1)], segments, "checkpoints", entries))
"""


def committed(directory: Path) -> tuple[dict[tuple[str, int], list[int]], dict[str, TaskCommit]]:
    with closing(LocalSystem(directory, SystemClock())) as system:
        written = {
            (stream, partition): [
                int(value)
                for _, batch in system.read(stream, partition, 0)
                for value in batch.column(1).to_pylist()
            ]
            for stream in ("out", "changelog")
            for partition in range(2)
        }
        checkpoints = read_commits(system.checkpoint_log("checkpoints").read())
    return written, {str(task): commit for task, commit in checkpoints.items()}


@pytest.mark.parametrize("step", STEPS)
def test_killed_again_and_again_at_a_step_of_the_commit_batches_are_there_once_and_whole(
    tmp_path: Path, step: str
) -> None:
    program = tmp_path / "committer.py"
    program.write_text(COMMITTER)
    died, directory = tmp_path / "died", tmp_path / "system"
    died.mkdir()
    with closing(LocalSystem(directory, SystemClock())) as system:
        for name in ("out", "changelog"):
            system.create_stream(StreamSpec(name, 2, compacted=name == "changelog"))
    kills = [1, 2, 3, 7]
    environment = {
        **os.environ,
        "GRETE_FAILPOINT": ",".join(f"{step}:kill:{nth}" for nth in kills),
        "GRETE_FAILPOINT_ONCE": str(died),
    }
    codes = []
    while not codes or codes[-1] != 0:
        command = [sys.executable, str(program), str(directory), str(BATCHES)]
        codes.append(subprocess.run(command, env=environment, timeout=60).returncode)
        assert codes[-1] in (0, -signal.SIGKILL)
        written, checkpoints = committed(directory)
        last = max((commit.batch_id for commit in checkpoints.values()), default=-1)
        assert {commit.batch_id for commit in checkpoints.values()} <= {last}
        assert all(batches == list(range(last + 1)) for batches in written.values())
    assert codes == [-signal.SIGKILL] * len(kills) + [0]
    assert last == BATCHES - 1
