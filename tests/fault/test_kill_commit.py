"""kill -9 at every step of the commit, again and again: all of a batch is there once, or nothing of it.

The committer is a program of its own that does with a batch what a pipeline's driver does, without Spark: outputs,
changelog and checkpoints of two tasks in one transaction, then the copy to the checkpoint store if there is one, from
where log and store say that it stopped. Workers of StreamTasks are killed in test_kill_everywhere.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.checkpoint.store import CheckpointStore, StoredCheckpoint, resolve
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.clock import SystemClock
from grete.container import checkpoints
from grete.container.assignment import parse_assignment
from grete.failpoints import POINTS
from grete.model.ids import TaskName
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.testing.waiting import patient

pytestmark = pytest.mark.fault

NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
BATCHES = 40
LOG, FILES, STREAM = (
    "grete.checkpoint.log",
    "grete.checkpoint.file-system",
    "grete.checkpoint.coordinator-stream",
)
STEPS = [(name, LOG) for name in POINTS if name.split(".")[0] in ("commit", "log", "file")]
STEPS += [(name, FILES) for name in ("commit.after-transaction", "checkpoint.file-written", "commit.after")]
STEPS += [
    (name, STREAM)
    for name in ("commit.after-transaction", "log.row-written", "file.committed", "commit.after")
]
COMMITTER = """
import json, sys
from pathlib import Path
from grete.checkpoint.task_commit import TaskCommit
from grete.clock import SystemClock
from grete.container import checkpoints
from grete.container.assignment import parse_assignment
from grete.systems.commit_group import SegmentWrite
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack

home, batches, clock = Path(sys.argv[1]), int(sys.argv[2]), SystemClock()
assignment = parse_assignment(json.loads(sys.argv[3]), home)
system = LocalSystem(home / "local", clock)
store = checkpoints.checkpoint_store(assignment, clock, home)
target = checkpoints.commit_target(assignment, system, clock, store)
found = checkpoints.reconcile_checkpoint_store(assignment, system, target)
first = 1 + max((int(offset) for commit in found.values() for offset in commit.offsets.values()), default=-1)
for batch in range(first, batches):
    data = pack([b"batch"], [b"%d" % batch], [0])
    segments = [SegmentWrite(name, number, 1, data) for name in ("out", "changelog") for number in range(2)]
    commits = {task.name: TaskCommit({task.ssps[0]: str(batch)}, "lineage", batch) for task in assignment.tasks}
    target.commit(segments, commits)
"""


def document(home: Path, factory: str) -> dict[str, Any]:
    """The assignment that a coordinator would serve."""
    ssps = [{"system": "local", "stream": "in", "partition": number} for number in range(2)]
    tasks = [
        {"name": f"Partition {number}", "ssps": [ssp], "changelog_partition": number}
        for number, ssp in enumerate(ssps)
    ]
    config = {"task.checkpoint.factory": factory, "task.checkpoint.path": str(home)}
    return {
        "job": {"name": "j", "id": "1"},
        "container_id": "0",
        "epoch": 1,
        "config": config,
        "tasks": tasks,
    }


def written(system: LocalSystem) -> dict[tuple[str, int], list[int]]:
    return {
        (stream, partition): [
            int(value)
            for _, batch in system.read(stream, partition, 0)
            for value in batch.column(1).to_pylist()
        ]
        for stream in ("out", "changelog")
        for partition in range(2)
    }


def state(
    home: Path, factory: str
) -> tuple[dict[tuple[str, int], list[int]], dict[TaskName, TaskCommit], CheckpointStore | None]:
    assignment = parse_assignment(document(home, factory), home)
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        target = checkpoints.commit_target(assignment, system, SystemClock())
        log = read_commits(system.checkpoint_log(target.checkpoint_log).read())
        return written(system), log, checkpoints.checkpoint_store(assignment, SystemClock(), home)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("step", "factory"), STEPS)
def test_killed_again_and_again_at_a_step_of_the_commit_batches_are_there_once_and_whole(
    tmp_path: Path, step: str, factory: str
) -> None:
    program, died, home = tmp_path / "committer.py", tmp_path / "died", tmp_path / "home"
    program.write_text(COMMITTER)
    died.mkdir()
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        for name in ("out", "changelog"):
            system.create_stream(StreamSpec(name, 2, compacted=name == "changelog"))
    kills = [1, 2, 3, 7] if NIGHTLY else [1, 3]
    environment = {
        **os.environ,
        "GRETE_FAILPOINT": ",".join(f"{step}:kill:{nth}" for nth in kills),
        "GRETE_FAILPOINT_ONCE": str(died),
    }
    command = [sys.executable, str(program), str(home), str(BATCHES), json.dumps(document(home, factory))]
    codes = []
    while not codes or codes[-1] != 0:
        codes.append(subprocess.run(command, env=environment, timeout=patient(60)).returncode)
        assert codes[-1] in (0, -signal.SIGKILL)
        batches, log, store = state(home, factory)
        last = max((commit.batch_id for commit in log.values()), default=-1)
        assert {commit.batch_id for commit in log.values()} <= {last}
        assert all(numbers == list(range(last + 1)) for numbers in batches.values())
        if store is not None:
            with closing(store):
                resolved = resolve(log, store.read(set(log)))
            assert resolved.commits == log, "an old or half-written copy was taken for an operator's wish"
    assert codes == [-signal.SIGKILL] * len(kills) + [0]
    assert last == BATCHES - 1
    assert store is None or not resolved.stale


@pytest.mark.parametrize("factory", [FILES, STREAM])
def test_killed_while_it_follows_an_operator_a_container_neither_forgets_nor_repeats_it(
    tmp_path: Path, factory: str
) -> None:
    program, died, home = tmp_path / "committer.py", tmp_path / "died", tmp_path / "home"
    program.write_text(COMMITTER)
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        for name in ("out", "changelog"):
            system.create_stream(StreamSpec(name, 2, compacted=name == "changelog"))
    assignment = parse_assignment(document(home, factory), home)
    operator = checkpoints.checkpoint_store(assignment, SystemClock(), home)
    assert operator is not None
    with closing(operator):
        operator.write({task.name: StoredCheckpoint({task.ssps[0]: "9"}) for task in assignment.tasks})
    steps = ["commit.before", "commit.in-transaction", "commit.after-transaction", "commit.after"]
    steps += ["checkpoint.file-written"] if factory == FILES else []
    environment = {
        **os.environ,
        "GRETE_FAILPOINT": ",".join(f"{step}:kill" for step in (*steps, *steps)),
        "GRETE_FAILPOINT_ONCE": str(died),
    }
    command = [sys.executable, str(program), str(home), str(BATCHES), json.dumps(document(home, factory))]
    codes = [
        subprocess.run(command, env=environment, timeout=patient(60)).returncode
        for _ in range(2 * len(steps) + 1)
    ]
    assert codes == [-signal.SIGKILL] * 2 * len(steps) + [0]
    batches, _, store = state(home, factory)
    assert all(numbers == list(range(10, BATCHES)) for numbers in batches.values())
    assert store is not None
    store.close()
