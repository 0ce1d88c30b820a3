"""The commit that counts where log and store differ, and how a job's checkpoints move from one store to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.checkpoint.store import (
    Resolved,
    StoredCheckpoint,
    commit_id,
    copies,
    digest,
    resolve,
)
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.clock import SystemClock
from grete.container import checkpoints
from grete.container.assignment import Assignment, parse_assignment
from grete.errors import LogCorrupted
from grete.model.ids import SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.commit_group import SegmentWrite
from grete.systems.local.system import LocalSystem
from grete.systems.records import pack

TASK, SSP = TaskName("Partition 0"), SystemStreamPartition("local", "in", 0)
NOW = TaskCommit({SSP: "46"}, "lineage", 2, "token", {"s": 5})
BEFORE = TaskCommit({SSP: "45"}, "lineage", 1, "other", {"s": 3})
DAMAGE = StoredCheckpoint(None, problem="the file is cut off")
FILES, STREAM = "grete.checkpoint.file-system", "grete.checkpoint.coordinator-stream"


@pytest.mark.parametrize(
    ("stored", "counts"),
    [
        (None, Resolved({TASK: NOW}, stale=frozenset({TASK}))),
        (copies({TASK: NOW})[TASK], Resolved({TASK: NOW})),
        (copies({TASK: BEFORE})[TASK], Resolved({TASK: NOW}, stale=frozenset({TASK}))),
        (StoredCheckpoint({SSP: "7"}), Resolved({TASK: TaskCommit({SSP: "7"})}, moved=frozenset({TASK}))),
        (StoredCheckpoint({SSP: "45"}), Resolved({TASK: TaskCommit({SSP: "45"})}, moved=frozenset({TASK}))),
        (StoredCheckpoint({SSP: "46"}), Resolved({TASK: NOW}, stale=frozenset({TASK}))),
        (DAMAGE, Resolved({TASK: NOW}, stale=frozenset({TASK}))),
    ],
)
def test_a_copy_never_moves_a_job_and_another_programs_checkpoint_does(
    stored: StoredCheckpoint | None, counts: Resolved
) -> None:
    assert resolve({TASK: NOW}, {} if stored is None else {TASK: stored}) == counts


def test_a_job_from_samza_starts_where_its_checkpoint_says() -> None:
    assert resolve({}, {TASK: StoredCheckpoint({SSP: "7"})}).commits == {TASK: TaskCommit({SSP: "7"})}


def test_damage_without_anything_to_replace_it_is_an_error_and_never_a_fresh_start() -> None:
    with pytest.raises(LogCorrupted, match="the file is cut off"):
        resolve({}, {TASK: DAMAGE})


def test_commits_that_differ_in_anything_have_different_ids() -> None:
    others = [
        BEFORE,
        TaskCommit({SSP: "47"}, "lineage", 2, "token", {"s": 5}),
        TaskCommit({SSP: "46"}, "another", 2, "token", {"s": 5}),
        TaskCommit({SSP: "46"}, "lineage", 2, "token", {"s": 6}),
        TaskCommit({SSP: "46"}),
    ]
    assert len({commit_id(commit) for commit in (NOW, *others)}) == 6
    two = {SSP: "1", SystemStreamPartition("local", "in", 1): "2"}
    assert digest(two) == digest(dict(reversed(two.items())))


class Container:
    """A container's start and commits, with any store."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._clock = SystemClock()
        self._system = LocalSystem(home / "local", self._clock)
        self._system.create_stream(StreamSpec("out", 1))

    def assignment(self, factory: str) -> Assignment:
        config = {"task.checkpoint.factory": factory, "task.checkpoint.path": str(self._home)}
        ssp = {"system": "local", "stream": "in", "partition": 0}
        task = {"name": TASK, "ssps": [ssp], "changelog_partition": 0}
        job = {"name": "j", "id": "1"}
        document = {"job": job, "container_id": "0", "epoch": 1, "config": config, "tasks": [task]}
        return parse_assignment(document, Path.cwd())

    def start(self, factory: str, *, then_commit: str | None = None) -> str | None:
        """Start, say where the task stands, and commit an offset if one is given."""
        assignment = self.assignment(factory)
        store = checkpoints.checkpoint_store(assignment, self._clock, self._home)
        target = checkpoints.commit_target(assignment, self._system, self._clock, store)
        found = checkpoints.reconcile_checkpoint_store(assignment, self._system, target)
        if then_commit is not None:
            segment = SegmentWrite("out", 0, 1, pack([b"k"], [b"v"], [0]))
            target.commit([segment], {TASK: TaskCommit({SSP: then_commit}, "lineage", int(then_commit))})
        if store is not None:
            store.close()
        return found[TASK].offsets[SSP] if TASK in found else None

    def overwrite(self, factory: str, offset: str) -> None:
        """An operator's change of the store."""
        store = checkpoints.checkpoint_store(self.assignment(factory), self._clock, self._home)
        assert store is not None
        with closing(store):
            store.write({TASK: StoredCheckpoint({SSP: offset})})

    def overwrite_log(self, offset: str) -> None:
        """An operator's change of the log."""
        name = checkpoints.commit_target(self.assignment("grete.checkpoint.log"), self._system, self._clock)
        entries = commit_entries({TASK: TaskCommit({SSP: offset})}, grouper=name.grouper)
        self._system.checkpoint_log(name.checkpoint_log).append(entries)

    def close(self) -> None:
        self._system.close()


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    made.close()


def test_checkpoints_move_along_when_a_job_changes_its_store(container: Container) -> None:
    assert container.start("grete.checkpoint.log", then_commit="1") is None
    assert container.start(FILES, then_commit="2") == "1"
    assert container.start(STREAM, then_commit="3") == "2"
    assert container.start(FILES) == "3"
    assert container.start(FILES, then_commit="4") == "3"
    assert container.start("grete.checkpoint.log", then_commit="5") == "4"
    assert container.start(STREAM) == "5"


@pytest.mark.parametrize("factory", [FILES, STREAM])
def test_an_operator_moves_a_job_in_its_store_or_in_the_log(container: Container, factory: str) -> None:
    container.start(factory, then_commit="8")
    container.start(factory, then_commit="9")
    container.overwrite(factory, "8")
    assert container.start(factory) == "8"
    assert container.start(factory, then_commit="9") == "8", "the wish stands until the next commit"
    assert container.start(factory) == "9"
    container.overwrite_log("4")
    assert container.start(factory) == "4"
    assert container.start(factory, then_commit="5") == "4"
    assert container.start(factory) == "5"


def test_a_store_that_is_lost_is_filled_again_and_nothing_starts_over(
    container: Container, tmp_path: Path
) -> None:
    container.start(FILES, then_commit="8")
    for path in tmp_path.glob("j-*-checkpoints*"):
        path.unlink()
    assert container.start(FILES) == "8"
    assert (tmp_path / "j-Partition 0-checkpoints").exists()
