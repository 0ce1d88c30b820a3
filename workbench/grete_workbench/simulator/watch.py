"""Invariants of the coordinator stream after every step, kept by a reader of its own.

- The configuration in force is always one whole generation: what was in force before a write, or what it asked for.
- Records written under a fence come in the order of their epochs.
- A task keeps its changelog partition for ever, and no two tasks share one.
- The terminal state of a run is final.
- A row whose write a tool saw confirmed is there once, after the rows before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from grete.clock import Clock
from grete.errors import WireError
from grete.keyed_log.base import KeyedLog, Record
from grete.metadata.assignments import ChangelogMapping
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.job_state import JobState, read_state
from grete.metadata.startpoint_state import STATE as STARTPOINT_STATE
from grete.metadata.startpoints import NAMESPACE as STARTPOINTS
from grete.model.ids import TaskName
from grete.model.startpoint import StartpointKind
from grete.wire import coordinator_message as codec
from grete.wire import startpoint_json
from grete_workbench.simulator.ledger import Ledger, Violation

AUDIT = "sim-audit"
"""Rows of a tool that appends with an id and asks again when it was not answered."""
_TERMINAL = ("finished", "stopped", "failed")


class StreamWatch:
    """Follows one coordinator stream."""

    def __init__(self, log: KeyedLog, clock: Clock, ledger: Ledger) -> None:
        self._log = log
        self._ledger = ledger
        self._clock = clock
        self._stream = CoordinatorStream(log, clock, source="watch")
        self._offset = -1
        self._epoch = -1
        self._in_force: dict[str, str] = {}
        self._asked: list[dict[str, str | None]] = []
        self.wishes: dict[str, dict[str, str | None]] = {}
        """Changes that a process may write at any time, by its name."""
        self._changelog: dict[TaskName, int] = {}
        self._ended: JobState | None = None
        self.ended_runs: set[str] = set()
        self._audit: list[int] = []
        self.is_dirty = False

    @property
    def config(self) -> dict[str, str]:
        """The configuration in force."""
        return dict(self._in_force)

    def raised(self, epoch: int) -> None:
        """A leader has the confirmation that every older one is refused from now on."""
        self.check()
        self._epoch = max(self._epoch, epoch)

    @contextmanager
    def expecting(self, config: Mapping[str, str]) -> Iterator[None]:
        """Around a write of this configuration; it may or may not become the one in force.

        What else is written while the writer stands still stays, save the keys that he changes.
        """
        self.check()
        old = self._in_force
        delta = {key: config.get(key) for key in {*old, *config} if old.get(key) != config.get(key)}
        self._asked.append(delta)
        try:
            yield
        finally:
            try:
                self.check()
            finally:
                self._asked.remove(delta)

    def may_go_back(self, who: str, config: Mapping[str, str]) -> bool:
        """A coordinator looks whether this configuration can be run: that in the stream, or one that was, which it
        may write then. Returns whether it is another one.
        """
        self.check()
        self.wishes[who] = {key: config.get(key) for key in _differing(self._in_force, config)}
        return bool(self.wishes[who])

    def acknowledged(self, row: int) -> None:
        """The tool has the confirmation that its row is durable."""
        self.check()
        if row not in self._audit:
            raise Violation("no acknowledged record lost", f"row {row} is not in the stream")

    def check(self) -> None:
        """Read what is new and compare.

        Raises:
            Violation: a promise is broken.
        """
        if not self.is_dirty:
            return
        self.is_dirty = False
        kinds = {self._take(record) for record in self._log.read(self._offset)}
        if kinds & {"set-config", "grete-config-generation"}:
            self._check_config()
        if "set-changelog" in kinds:
            self._check_changelog()
        if "grete-job-state" in kinds:
            self._check_state()

    def _take(self, record: Record) -> str:
        self._offset = record.offset
        if record.epoch is not None:
            if record.epoch < self._epoch:
                raise Violation(
                    "no write of an older epoch",
                    f"offset {record.offset} has epoch {record.epoch} after {self._epoch}",
                )
            self._epoch = record.epoch
        try:
            _, kind, key = codec.decode_key(record.key)
        except WireError:
            return ""
        if kind == AUDIT:
            self._check_audit(int(key))
        if kind == STARTPOINTS and record.value is not None:
            startpoint = startpoint_json.decode(record.value)
            offset = {StartpointKind.OLDEST: 0, StartpointKind.UPCOMING: None}.get(
                startpoint.kind, int(startpoint.offset or 0)
            )
            self._ledger.asked_to_rewind(int(key.split(".")[2]), offset, startpoint.created_ms)
        if kind == STARTPOINT_STATE and record.value is not None:
            self._ledger.asked_to_discard()
        return kind

    def _check_audit(self, row: int) -> None:
        if self._audit and row <= self._audit[-1]:
            raise Violation("no acknowledged record twice", f"row {row} comes after row {self._audit[-1]}")
        self._audit.append(row)

    def _check_config(self) -> None:
        found = self._stream.config()
        allowed = [
            self._in_force,
            *(_changed(self._in_force, delta) for delta in (*self._asked, *self.wishes.values())),
        ]
        if found not in allowed:
            nearest = min(allowed, key=lambda config: len(_differing(config, found)))
            wrong = {key: (nearest.get(key), found.get(key)) for key in _differing(nearest, found)}
            raise Violation("one whole configuration", f"(expected, found): {wrong}")
        self._in_force = found

    def reads_config(self, config: Mapping[str, str], who: str) -> None:
        """A coordinator acts on this configuration; it must be the one in force."""
        if dict(config) != self._in_force:
            differing = _differing(config, self._in_force)
            raise Violation("one whole configuration", f"{who} reads another one: {differing}")

    def _check_changelog(self) -> None:
        mapping = ChangelogMapping(self._stream).read()
        for task, partition in self._changelog.items():
            if mapping.get(task) != partition:
                raise Violation(
                    "a task keeps its changelog partition", f"{task!r}: {partition}, now {mapping.get(task)}"
                )
        active = [partition for task, partition in mapping.items() if not task.startswith("Standby-")]
        if len(set(active)) < len(active):
            raise Violation("no two tasks share a changelog partition", str(mapping))
        self._changelog = mapping

    def _check_state(self) -> None:
        state = read_state(self._stream)
        ended = self._ended
        if ended is not None and (
            state is None or (state.run_id == ended.run_id and state.state != ended.state)
        ):
            raise Violation("a terminal state is final", f"run {ended.run_id} was {ended.state}, is {state}")
        self._ended = state if state is not None and state.state in _TERMINAL else None
        if self._ended is not None:
            self.ended_runs.add(self._ended.run_id)

    def compacted(self) -> None:
        """The log was compacted: a new reader must find what we know.

        Raises:
            Violation: it does not.
        """
        self.is_dirty = True
        self.check()
        fresh = CoordinatorStream(self._log, self._clock, source="watch")
        if fresh.config() != self._in_force:
            raise Violation("compaction keeps the last entry of each key", "the configuration has changed")
        if ChangelogMapping(fresh).read() != self._changelog or read_state(fresh) != self.state:
            raise Violation("compaction keeps the last entry of each key", "the job's state has changed")
        if sum(1 for record in self._log.read() if AUDIT.encode() in record.key) != len(self._audit):
            raise Violation("compaction keeps the last entry of each key", "a tool's rows have changed")

    def owner(self, partition: int) -> TaskName:
        """The task that reads a partition of the input: the one that has its keys."""
        return TaskName(f"Partition {partition % max(1, len(self._changelog))}")

    @property
    def has_model(self) -> bool:
        """Whether the job has run: from then on keys stay with their tasks."""
        return self.state is not None

    @property
    def run_id(self) -> str | None:
        """The run that wrote the configuration in force."""
        return self._stream.run_id()

    @property
    def ended(self) -> JobState | None:
        """The terminal state of the run in force, if it has one."""
        return self._ended

    @property
    def state(self) -> JobState | None:
        """The job's state."""
        return read_state(self._stream)


def _changed(config: Mapping[str, str], delta: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in {**config, **delta}.items() if value is not None}


def _differing(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    return sorted(key for key in {*left, *right} if left.get(key) != right.get(key))
