"""Promises of every system (`grete.systems.base`): `SystemAdminConformance` for all of them, and
`TransactionalStoreConformance` for those whose outputs and checkpoints commit in one transaction.

Subclass with a fixture `back_end` that returns a `SystemBackEnd`. Streams are the suite's own: each test makes
the ones it needs. Offsets are compared as the system compares them, never as numbers.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import Protocol

import pytest

from grete.errors import Fenced, GreteError, StreamError, StreamNotFound
from grete.keyed_log.base import Entry, KeyedLog
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.systems.admin import SystemAdmin
from grete.systems.base import Message, System
from grete.systems.commit_group import CommitGroup, SegmentWrite

Records = Sequence[tuple[bytes | None, bytes | None]]


class SystemBackEnd(Protocol):
    """A system as the suite needs it."""

    name: str
    """The system's name in SSPs."""

    def admin(self) -> SystemAdmin:
        """Reopened each time, as another process would."""

    def append(self, stream: str, partition: int, records: Records) -> None:
        """Append (key, value) records as any program does."""

    def read(self, stream: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
        """Every visible record of a partition, in order."""


class TransactionalBackEnd(SystemBackEnd, Protocol):
    """A system whose checkpoint log can be written together with its streams."""

    def store(self) -> System:
        """Reopened each time, as another process would."""

    def checkpoint_log(self, name: str) -> KeyedLog:
        """A checkpoint log for reading."""

    def segment(self, stream: str, partition: int, records: Records) -> SegmentWrite:
        """Records in the packed form that `commit` takes."""


class SystemAdminConformance:
    """The suite of every system."""

    @pytest.fixture(autouse=True)
    def _names(self) -> None:
        self._mark = uuid.uuid4().hex[:8]

    def named(self, name: str) -> str:
        """A stream, log or scope of this test alone: a server may live longer than a test."""
        return f"{name}-{self._mark}"

    def test_a_stream_that_is_not_there_is_an_error_that_names_it(self, back_end: SystemBackEnd) -> None:
        """Never an empty stream."""
        admin = back_end.admin()
        with pytest.raises(StreamNotFound, match="nowhere"):
            admin.partition_count(self.named("nowhere"))
        with pytest.raises(StreamNotFound, match="nowhere"):
            admin.offsets(self.named("nowhere"))

    def test_a_new_stream_is_empty_and_seen_by_everybody(self, back_end: SystemBackEnd) -> None:
        """With every partition, and an offset to start from in each."""
        back_end.admin().create_stream(StreamSpec(self.named("in"), 3))
        admin = back_end.admin()
        assert admin.partition_count(self.named("in")) == 3
        assert self.named("in") in admin.streams()
        offsets = admin.offsets(self.named("in"))
        assert sorted(offsets) == [0, 1, 2]
        assert all((one.oldest, one.newest) == (None, None) and one.upcoming for one in offsets.values())

    def test_creating_what_is_there_is_fine_and_creating_it_otherwise_is_not(
        self, back_end: SystemBackEnd
    ) -> None:
        """A second container does so at every start."""
        admin = back_end.admin()
        admin.create_stream(StreamSpec(self.named("in"), 2))
        back_end.append(self.named("in"), 1, [(b"k", b"v")])
        admin.create_stream(StreamSpec(self.named("in"), 2))
        assert back_end.read(self.named("in"), 1) == [(b"k", b"v")]
        with pytest.raises(StreamError, match="2"):
            admin.create_stream(StreamSpec(self.named("in"), 5))
        assert admin.partition_count(self.named("in")) == 2

    def test_streams_are_listed_by_name(self, back_end: SystemBackEnd) -> None:
        """Sorted, names with dots and dashes among them."""
        admin = back_end.admin()
        names = [self.named(name) for name in ("a.b", "in", "j-1-s-changelog")]
        for name in reversed(names):
            admin.create_stream(StreamSpec(name, 1))
        assert [name for name in admin.streams() if name in names] == names

    def test_records_are_read_as_they_were_appended(self, back_end: SystemBackEnd) -> None:
        """In order within a partition; no key and no value are neither an empty key nor an empty value."""
        back_end.admin().create_stream(StreamSpec(self.named("in"), 2))
        records = [(b"k", b"1"), (None, b""), (b"", None), (b"k", b"\x00\xff")]
        back_end.append(self.named("in"), 0, records)
        back_end.append(self.named("in"), 0, [(b"k", b"2")])
        assert back_end.read(self.named("in"), 0) == [*records, (b"k", b"2")]
        assert back_end.read(self.named("in"), 1) == []

    def test_offsets_say_what_a_partition_holds(self, back_end: SystemBackEnd) -> None:
        """Oldest is the first record, newest the last, upcoming the one after it."""
        admin = back_end.admin()
        admin.create_stream(StreamSpec(self.named("in"), 2))
        before = admin.offsets(self.named("in"))[0].upcoming
        back_end.append(self.named("in"), 0, [(b"k", b"1")])
        one = admin.offsets(self.named("in"))[0]
        assert one.oldest == one.newest == before
        back_end.append(self.named("in"), 0, [(b"k", b"2"), (b"k", b"3")])
        three = admin.offsets(self.named("in"))[0]
        assert three.oldest == one.oldest
        assert three.newest is not None
        assert admin.compare(three.newest, before) > 0
        ssp = SystemStreamPartition(back_end.name, self.named("in"), 0)
        assert admin.offsets_after({ssp: three.newest}) == {ssp: three.upcoming}
        assert admin.offsets(self.named("in"))[1].oldest is None

    def test_offsets_are_ordered(self, back_end: SystemBackEnd) -> None:
        """Also where their texts are not: 9 comes before 10."""
        admin = back_end.admin()
        admin.create_stream(StreamSpec(self.named("in"), 1))
        seen = [admin.offsets(self.named("in"))[0].upcoming]
        for number in range(11):
            back_end.append(self.named("in"), 0, [(b"k", b"%d" % number)])
            seen.append(admin.offsets(self.named("in"))[0].upcoming)
        assert all(
            admin.compare(low, high) < 0 < admin.compare(high, low) for low, high in itertools.pairwise(seen)
        )
        assert admin.compare(seen[3], seen[3]) == 0

    def test_offsets_after_answers_for_each_ssp(self, back_end: SystemBackEnd) -> None:
        """Several at once, of several streams."""
        admin = back_end.admin()
        for name in map(self.named, ("a", "b")):
            admin.create_stream(StreamSpec(name, 1))
            back_end.append(name, 0, [(b"k", b"1")])
        newest = {
            SystemStreamPartition(back_end.name, name, 0): admin.offsets(name)[0].newest or ""
            for name in map(self.named, ("a", "b"))
        }
        after = admin.offsets_after(newest)
        assert after == {ssp: admin.offsets(ssp.stream)[0].upcoming for ssp in newest}
        assert admin.offsets_after({}) == {}


class TransactionalStoreConformance(SystemAdminConformance):
    """The suite of a system that commits outputs, changelogs and checkpoints together."""

    def fence(self, epoch: int, scope: str = "container/job/0") -> Fence:
        """A fence of this test alone."""
        return Fence(self.named(scope), epoch)

    @pytest.fixture(autouse=True)
    def _streams(self, request: pytest.FixtureRequest, _names: None) -> None:
        if "commit" in request.node.name or "fence" in request.node.name:
            admin = request.getfixturevalue("back_end").admin()
            admin.create_stream(StreamSpec(self.named("out"), 2))
            admin.create_stream(StreamSpec(self.named("changelog"), 2, compacted=True))

    def _group(
        self,
        back_end: TransactionalBackEnd,
        text: bytes,
        fences: Sequence[Fence] | None = None,
        stream: str = "out",
    ) -> CommitGroup:
        """Two outputs, a change and a checkpoint that all say `text`."""
        segments = [
            back_end.segment(self.named("changelog"), 1, [(b"k", text)]),
            back_end.segment(self.named("out"), 0, [(b"a", text), (b"b", text)]),
            back_end.segment(self.named(stream), 1, [(None, text)]),
        ]
        return CommitGroup(
            [self.fence(2)] if fences is None else fences,
            segments,
            self.named("checkpoints"),
            [Entry(b"task", text)],
        )

    def _everything(self, back_end: TransactionalBackEnd) -> list[bytes | None]:
        values = [
            value
            for part in ((self.named("out"), 0), (self.named("out"), 1), (self.named("changelog"), 1))
            for _, value in back_end.read(*part)
        ]
        return values + [record.value for record in back_end.checkpoint_log(self.named("checkpoints")).read()]

    def test_a_commit_makes_outputs_changes_and_checkpoints_visible(
        self, back_end: TransactionalBackEnd
    ) -> None:
        """To every process, when it returns, with an offset behind the last record of each partition written.

        What comes later is at that offset or after it; a system whose transactions leave marks has gaps there.
        """
        ends = back_end.store().commit(self._group(back_end, b"1"))
        assert self._everything(back_end) == [b"1"] * 5
        admin = back_end.admin()
        assert set(ends) == {(self.named("out"), 0), (self.named("out"), 1), (self.named("changelog"), 1)}
        for (stream, partition), end in ends.items():
            found = admin.offsets(stream)[partition]
            assert found.oldest is not None
            assert admin.compare(found.oldest, str(end)) < 0 <= admin.compare(found.upcoming, str(end))

    def test_records_that_are_appended_by_hand_lie_where_their_keys_belong(
        self, back_end: TransactionalBackEnd
    ) -> None:
        """All of a call, in order; a record may name its partition instead."""
        system, stream = back_end.store(), self.named("by-hand")
        system.create_stream(StreamSpec(stream, 4))
        messages = [Message(b"%d" % (i % 9), b"%d" % i, 1) for i in range(90)]
        assert system.append(stream, messages) == 90
        assert system.append(stream, [Message(b"own", b"place", 1, partition=2)]) == 1
        found = [back_end.read(stream, partition) for partition in range(4)]
        for partition in found:
            kept = {key for key, _ in partition} - {b"own"}
            assert [(k, v) for k, v in partition if k in kept] == [
                (message.key, message.value) for message in messages if message.key in kept
            ]
        assert sum(map(len, found)) == 91
        assert (b"own", b"place") in found[2]

    def test_an_append_to_a_partition_that_is_not_there_leaves_nothing(
        self, back_end: TransactionalBackEnd
    ) -> None:
        """Not the records for partitions that are there, either."""
        system, stream = back_end.store(), self.named("by-hand")
        system.create_stream(StreamSpec(stream, 1))
        with pytest.raises(StreamError, match="partition"):
            system.append(stream, [Message(None, b"good", 1), Message(None, b"lost", 1, partition=7)])
        assert back_end.read(stream, 0) == []

    def test_a_compacted_stream_is_known_for_one(self, back_end: TransactionalBackEnd) -> None:
        """So that people see which streams forget."""
        system, log, changes = back_end.store(), self.named("log"), self.named("changes")
        system.create_stream(StreamSpec(log, 1))
        system.ensure_stream(StreamSpec(changes, 1, compacted=True))
        assert (system.is_compacted(log), system.is_compacted(changes)) == (False, True)

    def test_commits_follow_each_other(self, back_end: TransactionalBackEnd) -> None:
        """In order, and records that other programs append meanwhile stand between them."""
        store = back_end.store()
        store.commit(self._group(back_end, b"1"))
        back_end.append(self.named("out"), 1, [(None, b"foreign")])
        store.commit(self._group(back_end, b"2"))
        assert back_end.read(self.named("out"), 1) == [(None, b"1"), (None, b"foreign"), (None, b"2")]
        assert [record.value for record in back_end.checkpoint_log(self.named("checkpoints")).read()] == [
            b"1",
            b"2",
        ]

    def test_a_commit_that_fails_leaves_nothing(self, back_end: TransactionalBackEnd) -> None:
        """Its last segment goes to a stream that is not there: what came before it is not visible either."""
        store = back_end.store()
        with pytest.raises(GreteError):
            store.commit(self._group(back_end, b"1", stream="nowhere"))
        assert self._everything(back_end) == []
        store.commit(self._group(back_end, b"2"))
        assert self._everything(back_end) == [b"2"] * 5

    def test_a_commit_without_records_moves_the_checkpoint(self, back_end: TransactionalBackEnd) -> None:
        """A batch that sent nothing was processed all the same."""
        back_end.store().commit(
            CommitGroup([self.fence(2)], [], self.named("checkpoints"), [Entry(b"task", b"1")])
        )
        assert [record.value for record in back_end.checkpoint_log(self.named("checkpoints")).read()] == [
            b"1"
        ]

    def test_a_fenced_commit_leaves_nothing(self, back_end: TransactionalBackEnd) -> None:
        """The one who was succeeded is refused, from the moment that `raise_fence` has returned."""
        old, new = back_end.store(), back_end.store()
        old.commit(self._group(back_end, b"1"))
        new.raise_fence([self.fence(3)])
        with pytest.raises(Fenced):
            old.commit(self._group(back_end, b"2"))
        assert self._everything(back_end) == [b"1"] * 5
        new.commit(self._group(back_end, b"3", [self.fence(3)]))
        assert self._everything(back_end).count(b"3") == 5

    def test_who_is_given_the_raised_fence_goes_on_under_it(self, back_end: TransactionalBackEnd) -> None:
        """A container that gives tasks away: its coordinator raises its fence, and sends it the new epoch."""
        coordinator, container, going_on = back_end.store(), back_end.store(), back_end.store()
        container.raise_fence([self.fence(2)])
        container.commit(self._group(back_end, b"1", [self.fence(2)]))
        coordinator.raise_fence([self.fence(3)])
        with pytest.raises(Fenced):
            container.commit(self._group(back_end, b"2", [self.fence(2)]))
        going_on.raise_fence([self.fence(3)])
        going_on.commit(self._group(back_end, b"3", [self.fence(3)]))
        everything = self._everything(back_end)
        assert [everything.count(text) for text in (b"1", b"2", b"3")] == [5, 0, 5]

    def test_a_commit_under_a_higher_epoch_raises_the_fence(self, back_end: TransactionalBackEnd) -> None:
        """It need not be raised first."""
        one, two = back_end.store(), back_end.store()
        two.commit(self._group(back_end, b"2", [self.fence(9)]))
        with pytest.raises(Fenced):
            one.commit(self._group(back_end, b"1"))
        assert self._everything(back_end) == [b"2"] * 5

    def test_a_fence_is_raised_again_and_never_lowered(self, back_end: TransactionalBackEnd) -> None:
        """The same epoch twice is fine, as after a reply that was lost; other scopes are not touched."""
        store = back_end.store()
        store.raise_fence([self.fence(5, "s")])
        store.raise_fence([self.fence(5, "s")])
        with pytest.raises(Fenced):
            back_end.store().raise_fence([self.fence(4, "s")])
        store.raise_fence([self.fence(1, "other")])

    def test_every_fence_of_a_commit_counts(self, back_end: TransactionalBackEnd) -> None:
        """One that is stale is enough to refuse it, and the others are not raised by it."""
        store = back_end.store()
        store.raise_fence([self.fence(5, "s")])
        with pytest.raises(Fenced):
            store.commit(self._group(back_end, b"1", [self.fence(8, "other"), self.fence(4, "s")]))
        assert self._everything(back_end) == []
        store.raise_fence([self.fence(7, "other")])
