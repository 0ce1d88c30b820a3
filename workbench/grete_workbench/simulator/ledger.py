"""Invariants of the streams after every step, kept by a reader of what is really there.

- Every input record that a checkpoint covers has exactly one output, in order (unless an operator rewound).
- Outputs, changelog and checkpoint move together: none is ever ahead of the others.
- A key's state is what its records say, and lives in one changelog partition for ever.
- A task is committed only by the incarnation that began to run it last.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from grete.checkpoint.applied_startpoints import read_applied
from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, read_commits
from grete.keyed_log.base import Record
from grete.model.ids import JobId, SystemStreamPartition, TaskName
from grete.systems.local.system import LocalSystem
from grete_workbench.simulator.application import OUTPUT

INPUT = "in"


class Violation(AssertionError):
    """Something happened that must never happen. `rule` names the promise that was broken."""

    def __init__(self, rule: str, what: str) -> None:
        self.rule = rule
        super().__init__(f"{rule}: {what}")


class Ledger:
    """Follows outputs, changelog and checkpoints of one job."""

    def __init__(self, system: LocalSystem, job: JobId, changelog: str) -> None:
        self._system = system
        self._changelog = changelog
        self._log = system.checkpoint_log(checkpoint_log_name(job))
        self._read: dict[tuple[str, int], int] = {}
        self._checkpoint_end = -1
        self._checkpoint_records: dict[bytes, Record] = {}
        self._owners: dict[TaskName, str] = {}
        self.next_offset: dict[int, int] = {}
        self._rewinds: dict[int, dict[int, int | None]] = {}
        self._applied_ms: dict[int, int] = {}
        self._numbers: dict[bytes, int] = {}
        self._was_rewound = False
        self._may_discard = False
        self.counts: dict[bytes, int] = {}
        self._state: dict[bytes, int] = {}
        self._home: dict[bytes, int] = {}
        self.is_dirty = False
        self.outputs = 0

    # --- who may write ---

    def takes(self, task: TaskName, incarnation: str) -> None:
        """An incarnation has read the task's checkpoint and processes it from there."""
        self._owners[task] = incarnation

    def commits(self, task: TaskName, incarnation: str) -> None:
        """An incarnation has committed a batch of the task."""
        owner = self._owners.get(task)
        if owner != incarnation:
            raise Violation(
                "one writer a task", f"{incarnation} has committed {task!r}, which {owner} had begun to run"
            )

    # --- what an operator did ---

    def asked_to_rewind(self, partition: int, offset: int | None, created_ms: int) -> None:
        """A startpoint of this time is durable: the partition shall go on from here, once; None is its end then."""
        self._rewinds.setdefault(partition, {})[created_ms] = offset
        self._was_rewound = True

    def asked_to_discard(self) -> None:
        """A startpoint asks some task to begin with empty stores."""
        self._may_discard = True

    # --- what is there ---

    def check(self) -> None:
        """Read what is new and compare.

        Raises:
            Violation: a promise is broken.
        """
        if not self.is_dirty:
            return
        self.is_dirty = False
        touched = self._check_outputs()
        self._check_state(touched)
        self._check_checkpoints()

    def _new(self, stream: str) -> Iterator[tuple[int, int, bytes, bytes | None]]:
        """(partition, offset, key, value) of what was appended since the last look."""
        for partition, offsets in sorted(self._system.offsets(stream).items()):
            start, end = self._read.get((stream, partition), 0), int(offsets.upcoming)
            if start == end:
                continue
            for first, batch in self._system.read(stream, partition, start, end):
                keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
                for row, (key, value) in enumerate(zip(keys, values, strict=True)):
                    yield partition, first + row, key, value
            self._read[stream, partition] = end

    def _check_outputs(self) -> set[bytes]:
        by_origin: dict[int, list[int]] = {}
        last: dict[tuple[int, int], int] = {}
        touched: set[bytes] = set()
        for partition, _, key, value in self._new(OUTPUT):
            assert value is not None, "the application sends no tombstones"
            origin, offset, count, number = orjson.loads(value)
            self.outputs += 1
            by_origin.setdefault(origin, []).append(offset)
            if last.get((partition, origin), -1) >= offset:
                raise Violation(
                    "order", f"{INPUT}.{origin}: offset {offset} comes late in output {partition}"
                )
            last[partition, origin] = offset
            self.counts[key] = self.counts.get(key, 0) + 1
            if count != self.counts[key]:
                raise Violation(
                    "state exactly once", f"record {self.counts[key]} of key {key!r} was counted as {count}"
                )
            if number <= self._numbers.get(key, 0) and not self._was_rewound:
                raise Violation(
                    "a key's records stay in order", f"message {number} of {key!r} after {self._numbers[key]}"
                )
            self._numbers[key] = number
            touched.add(key)
        for origin, offsets in by_origin.items():
            for offset in sorted(offsets):
                self._check_offset(origin, offset)
        return touched

    def _check_offset(self, origin: int, offset: int) -> None:
        expected = self.next_offset.get(origin, 0)
        if offset != expected:
            rule = "no record twice" if offset < expected else "no record lost"
            raise Violation(rule, f"{INPUT}.{origin}: offset {offset} was processed, expected {expected}")
        self.next_offset[origin] = offset + 1

    def _discard(self, key: bytes, partition: int) -> None:
        if not self._may_discard:
            raise Violation("state exactly once", f"key {key!r} of changelog {partition} was deleted")
        self._state.pop(key, None)
        self.counts.pop(key, None)

    def _check_state(self, touched: set[bytes]) -> None:
        emptied: set[int] = set()
        for partition, _, key, value in self._new(self._changelog):
            home = self._home.setdefault(key, partition)
            if home != partition:
                raise Violation(
                    "a key keeps its state", f"key {key!r} is in changelog {home} and in {partition}"
                )
            if value is None:
                self._discard(key, partition)
                emptied.add(partition)
            else:
                self._state[key] = int(value)
            touched.add(key)
        for key, home in self._home.items():
            if home in emptied and key in self._state:
                raise Violation("stores are discarded as a whole", f"key {key!r} of changelog {home} is left")
        for key in touched:
            if self._state.get(key) != self.counts.get(key):
                raise Violation(
                    "outputs, state and checkpoint move together",
                    f"key {key!r} has {self.counts.get(key)} outputs, its state says {self._state.get(key)}",
                )

    def _check_checkpoints(self) -> None:
        commits = self.commits_now()
        covered = {ssp.partition: int(o) + 1 for one in commits.values() for ssp, o in one.offsets.items()}
        for one in read_applied(self._checkpoint_records.values()).values():
            for ssp, created_ms in one.created_ms.items():
                self._check_applied(ssp.partition, created_ms, covered)
        for partition in sorted({*covered, *self.next_offset}):
            done, said = self.next_offset.get(partition, 0), covered.get(partition, 0)
            if said != done:
                raise Violation(
                    "outputs, state and checkpoint move together",
                    f"{INPUT}.{partition}: outputs end before {done}, the checkpoint says {said}",
                )

    def _check_applied(self, partition: int, created_ms: int, covered: dict[int, int]) -> None:
        """A startpoint that was applied just now moves the checkpoint; from then on older ones count for nothing."""
        before = self._applied_ms.get(partition, 0)
        if created_ms == before:
            return
        asked = self._rewinds.get(partition, {})
        if created_ms < before or created_ms not in asked:
            raise Violation(
                "a startpoint is applied once",
                f"{INPUT}.{partition}: {created_ms} after {before}, of {asked}",
            )
        self._applied_ms[partition] = created_ms
        target = asked[created_ms]
        self.next_offset[partition] = covered[partition] if target is None else target
        self._rewinds[partition] = {time: offset for time, offset in asked.items() if time > created_ms}

    def commits_now(self) -> dict[TaskName, TaskCommit]:
        """The last commit of every task."""
        for record in self._log.read(self._checkpoint_end):
            self._checkpoint_records.pop(record.key, None)
            self._checkpoint_records[record.key] = record
            self._checkpoint_end = record.offset
        return read_commits(self._checkpoint_records.values())

    def compact(self) -> None:
        """Compact the checkpoint log.

        Raises:
            Violation: a new reader does not find the same commits.
        """
        before = self.commits_now()
        self._log.compact()
        if read_commits(self._log.read()) != before:
            raise Violation("compaction keeps the last entry of each key", "commits have changed")

    # --- at the end ---

    def missing(self) -> list[str]:
        """Open work: partitions that are not processed to their ends, rewinds that were not applied."""
        left = []
        for partition, offsets in sorted(self._system.offsets(INPUT).items()):
            done, end = self.next_offset.get(partition, 0), int(offsets.upcoming)
            if done != end:
                left.append(f"{INPUT}.{partition} is at {done} of {end}")
        left += [
            f"{INPUT}.{partition} was to be rewound: {asked}"
            for partition, asked in sorted(self._rewinds.items())
            if asked
        ]
        return left


def input_ssp(partition: int) -> SystemStreamPartition:
    """The partition of the input as an SSP."""
    return SystemStreamPartition("local", INPUT, partition)
