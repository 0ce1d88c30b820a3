"""Whatever happens to log and store, in any order: a job stands where it has come to, or where it was moved."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from grete.checkpoint.store import CheckpointStore, StoredCheckpoint
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.container import checkpoints
from grete.container.assignment import Assignment, parse_assignment
from grete.keyed_log.base import Entry
from grete.metadata.access import open_coordinator_stream
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.model.messages import SET_CHECKPOINT
from grete.systems.local.system import LocalSystem
from grete.tasks.commit.base import CommitTarget
from grete.wire import checkpoint_json
from grete.wire.coordinator_message import encode_key

LOG, FILES, STREAM = (
    "grete.checkpoint.log",
    "grete.checkpoint.file-system",
    "grete.checkpoint.coordinator-stream",
)
TASK, SSP, JOB = TaskName("Partition 0"), SystemStreamPartition("local", "in", 0), JobId("j")
stores, factories = st.sampled_from([FILES, STREAM]), st.sampled_from([LOG, FILES, STREAM])
offsets = st.integers(0, 5)  # few, so that a wish often equals what is there


class Job(RuleBasedStateMachine):
    """`stands` is where the log's commits have come to; `wishes` are what others wrote into a store, not yet seen."""

    @initialize(factory=factories)
    def begin(self, factory: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="grete-property-"))
        self.clock = SystemClock()
        self.system = LocalSystem(self.home / "local", self.clock)
        self.wishes: dict[str, int] = {}
        self.stands: int | None = None
        self.commit(factory, dies=False)

    def _assignment(self, factory: str) -> Assignment:
        config = {"task.checkpoint.factory": factory, "task.checkpoint.path": str(self.home)}
        ssp = {"system": "local", "stream": "in", "partition": 0}
        task = {"name": TASK, "ssps": [ssp], "changelog_partition": 0}
        job = {"name": JOB.name, "id": JOB.id}
        document = {"job": job, "container_id": "0", "epoch": 1, "config": config, "tasks": [task]}
        return parse_assignment(document, Path.cwd())

    def _store(self, factory: str) -> CheckpointStore | None:
        return checkpoints.checkpoint_store(self._assignment(factory), self.clock, self.home)

    def _target(self, store: CheckpointStore | None) -> CommitTarget:
        return checkpoints.commit_target(self._assignment(LOG), self.system, self.clock, store)

    @rule(factory=factories, dies=st.booleans())
    def commit(self, factory: str, dies: bool) -> None:
        """A container starts, commits a batch, and may die before the copy is made."""
        store = self._store(factory)
        found = checkpoints.reconcile_checkpoint_store(
            self._assignment(factory), self.system, self._target(store)
        )
        self.stands = self.wishes.pop(factory, self.stands)
        at = int(found[TASK].offsets[SSP]) if TASK in found else None
        assert at == self.stands
        self.stands = 0 if at is None else at + 1
        self._target(None if dies else store).commit(
            [], {TASK: TaskCommit({SSP: str(self.stands)}, "lineage", self.stands)}
        )
        if store is not None:
            store.close()

    @rule(factory=factories)
    def start(self, factory: str) -> None:
        """A container starts and dies before its first batch."""
        store = self._store(factory)
        found = checkpoints.reconcile_checkpoint_store(
            self._assignment(factory), self.system, self._target(store)
        )
        self.stands = self.wishes.pop(factory, self.stands)
        assert found[TASK].offsets == {SSP: str(self.stands)}
        if store is not None:
            assert store.read({TASK})[TASK].commit is not None, "the store has a copy of ours again"
            store.close()

    @rule(factory=stores, offset=offsets)
    def move_in_the_store(self, factory: str, offset: int) -> None:
        """An operator writes the store."""
        store = self._store(factory)
        assert store is not None
        with closing(store):
            store.write({TASK: StoredCheckpoint({SSP: str(offset)})})
        self.wishes[factory] = offset

    @rule(offset=offsets)
    def move_as_samza(self, offset: int) -> None:
        """Samza runs the job for a while, on the files."""
        (self.home / f"{JOB.name}-{TASK}-checkpoints").write_bytes(
            checkpoint_json.encode_v1({SSP: str(offset)})
        )
        proven = self._store(FILES)
        assert proven is not None
        with closing(proven):
            if proven.read({TASK})[TASK].commit is None:
                self.wishes[FILES] = offset
            else:  # it wrote what our copy says, and took back what was wished before
                self.wishes.pop(FILES, None)

    @rule(offset=offsets)
    def move_in_the_log(self, offset: int) -> None:
        """An operator writes the log."""
        entries = commit_entries({TASK: TaskCommit({SSP: str(offset)})}, grouper=self._target(None).grouper)
        self.system.checkpoint_log(self._target(None).checkpoint_log).append(entries)
        self.stands = offset

    @rule(factory=stores)
    def damage(self, factory: str) -> None:
        """The store's checkpoint becomes unreadable, whatever it said."""
        if factory == FILES:
            (self.home / f"{JOB.name}-{TASK}-checkpoints").write_bytes(b"{")
        else:
            with open_coordinator_stream(Settings(), JOB, self.home) as stream:
                stream.append([Entry(encode_key(SET_CHECKPOINT, TASK), b"{")])
        self.wishes.pop(factory, None)

    @rule()
    def lose_the_files(self) -> None:
        """With their proofs, or without."""
        for path in self.home.glob(f"{JOB.name}-*-checkpoints*"):
            path.unlink()
        self.wishes.pop(FILES, None)

    @invariant()
    def nothing_is_committed_that_nobody_committed(self) -> None:
        found = checkpoints.committed(self._assignment(LOG), self.system)
        assert found[TASK].offsets == {SSP: str(self.stands)}

    def teardown(self) -> None:
        self.system.close()
        shutil.rmtree(self.home)


Job.TestCase.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)
TestJob = Job.TestCase
