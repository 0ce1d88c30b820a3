"""Streams that are merged, trimmed and compacted between batches: smaller, and the same for every reader."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from grete.config.settings import Settings
from grete.container.assignment import AssignedTask, Assignment
from grete.container.housekeeping import policies
from grete.errors import Fenced, LogCorrupted, OffsetOutOfRange
from grete.model.fence import Fence
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamPolicy, StreamSpec
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.local.compactor import CompactionLimits
from grete.systems.local.housekeeping import Housekeeper
from grete.systems.local.segment_rows import PartitionKey, data_of, replace_in, segments_from
from grete.systems.local.system import LocalSystem, Message
from grete.systems.records import pack, unpack_changes
from grete.tasks.stores.file import StoreFile
from grete.testing.clock import ManualClock

HOUR_MS = 3_600_000
SMALL = CompactionLimits(min_dirty_bytes=1, max_keys=1_000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def keeper(
    system: LocalSystem, clock: ManualClock, *policies: StreamPolicy, limits: CompactionLimits = SMALL
) -> Housekeeper:
    return Housekeeper(system, policies, [Fence("tidy", 1)], clock, limits)


def run(housekeeper: Housekeeper) -> int:
    """A whole round; says how many pieces of work there were."""
    pieces = 0
    while housekeeper.step():
        pieces += 1
    return pieces


def stamped(
    system: LocalSystem, stream: str, *records: tuple[str | None, str | None], at_ms: int = 0
) -> None:
    """One segment."""
    keys, values = zip(*records, strict=True)
    data = pack(
        [key and key.encode() for key in keys],
        [None if value is None else value.encode() for value in values],
        [at_ms] * len(records),
    )
    system.commit(CommitGroup([], [SegmentWrite(stream, 0, len(records), data)], "", []))


def records(system: LocalSystem, stream: str, start: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    for first, batch in system.read(stream, 0, start):
        offsets = batch.column(3).to_pylist() if batch.num_columns > 3 else itertools.count(first)
        found += list(zip(offsets, batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=False))
    return found


def segments(system: LocalSystem) -> int:
    with system.file.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM segments").get)


def test_small_neighbours_become_one_segment_and_nothing_else_changes(
    system: LocalSystem, clock: ManualClock
) -> None:
    system.create_stream(StreamSpec("s", 1))
    for i in range(700):
        system.append("s", [Message(b"k", b"%d" % i, i)])
    before = records(system, "s")
    reading = system.read("s", 0, 0)
    seen = [next(reading)[1].column(1)[0].as_py() for _ in range(100)]
    assert run(keeper(system, clock, StreamPolicy("s"))) > 0
    assert segments(system) < 64
    assert records(system, "s") == before
    assert records(system, "s", 355) == before[355:]
    seen += [value for _, batch in reading for value in batch.column(1).to_pylist()]
    assert seen == [b"%d" % i for i in range(700)]  # by a reader who was under way


def test_a_stream_that_has_been_merged_is_left_alone(system: LocalSystem, clock: ManualClock) -> None:
    system.create_stream(StreamSpec("s", 1))
    for i in range(200):
        system.append("s", [Message(b"k", b"%d" % i, i)])
    housekeeper = keeper(system, clock, StreamPolicy("s"))
    run(housekeeper)
    clock.advance(60)
    assert run(housekeeper) == 0


def test_a_round_is_made_now_and_then_only(system: LocalSystem, clock: ManualClock) -> None:
    system.create_stream(StreamSpec("s", 1))
    housekeeper = keeper(system, clock, StreamPolicy("s"))
    run(housekeeper)
    for i in range(100):
        system.append("s", [Message(b"k", b"%d" % i, i)])
    assert run(housekeeper) == 0
    clock.advance(60)
    assert run(housekeeper) == 1


def test_retention_by_time_takes_what_is_old_from_the_front(system: LocalSystem, clock: ManualClock) -> None:
    system.create_stream(StreamSpec("s", 1))
    now = clock.wall_ms()
    for age_h in (5, 4, 1, 3, 0):
        stamped(system, "s", ("k", f"{age_h}"), ("k", f"{age_h}"), at_ms=now - age_h * HOUR_MS)
    run(keeper(system, clock, StreamPolicy("s", retention_ms=2 * HOUR_MS)))
    assert [offset for offset, _, _ in records(system, "s", 4)] == [4, 5, 6, 7, 8, 9]
    assert (system.offsets("s")[0].oldest, system.offsets("s")[0].upcoming) == ("4", "10")
    with pytest.raises(OffsetOutOfRange, match="holds 4 to 9"):
        records(system, "s", 3)


def test_retention_by_size_keeps_at_least_what_was_asked_for(system: LocalSystem, clock: ManualClock) -> None:
    system.create_stream(StreamSpec("s", 1))
    for _ in range(10):
        stamped(system, "s", ("k", "x" * 10_000))
    run(keeper(system, clock, StreamPolicy("s", retention_bytes=35_000)))
    assert len(records(system, "s", 6)) == 4
    assert system.offsets("s")[0].oldest == "6"


def test_without_retention_everything_stays(system: LocalSystem, clock: ManualClock) -> None:
    system.create_stream(StreamSpec("s", 1))
    stamped(system, "s", ("k", "v"))
    assert run(keeper(system, clock, StreamPolicy("s"))) == 0
    assert len(records(system, "s")) == 1


def changelog(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("c", 1, compacted=True))
    stamped(system, "c", ("a", "1"), ("b", "1"), ("c", "1"))
    stamped(system, "c", ("a", "2"), ("b", None), ("c", "1"))
    stamped(system, "c", ("d", "1"), ("c", "2"))


def test_compaction_keeps_the_last_of_each_key_at_its_offset(system: LocalSystem, clock: ManualClock) -> None:
    changelog(system)
    run(keeper(system, clock, StreamPolicy("c")))
    assert records(system, "c") == [(3, b"a", b"2"), (6, b"d", b"1"), (7, b"c", b"2")]
    assert system.offsets("c")[0].upcoming == "8"
    stamped(system, "c", ("a", "3"), ("d", None))
    stamped(system, "c", ("e", "1"), ("e", "2"))
    run(keeper(system, clock, StreamPolicy("c"), limits=CompactionLimits(min_dirty_bytes=1, max_keys=1)))
    # as much as could be remembered at one time
    assert records(system, "c") == [(7, b"c", b"2"), (8, b"a", b"3"), (10, b"e", b"1"), (11, b"e", b"2")]


def test_a_compaction_that_died_half_way_brings_nothing_back(system: LocalSystem, clock: ManualClock) -> None:
    system.create_stream(StreamSpec("c", 1, compacted=True))
    stamped(system, "c", ("x", "1"), ("x", "2"))
    stamped(system, "c", ("b", "1"))
    stamped(system, "c", ("b", None))
    one_by_one = CompactionLimits(min_dirty_bytes=1, segment_bytes=1)
    dying = keeper(system, clock, StreamPolicy("c"), limits=one_by_one)
    while len(records(system, "c")) == 4:
        assert dying.step()
    assert records(system, "c") == [(1, b"x", b"2"), (2, b"b", b"1"), (3, b"b", None)]
    for i in range(6):
        stamped(system, "c", ("y", str(i)))
    run(keeper(system, clock, StreamPolicy("c"), limits=one_by_one))
    assert records(system, "c") == [(1, b"x", b"2"), (9, b"y", b"5")]


def test_what_another_process_has_rewritten_is_not_written_over(
    system: LocalSystem, clock: ManualClock
) -> None:
    changelog(system)
    key = PartitionKey(system.stream("c").id, 0)
    with system.file.reading() as connection:
        listed = segments_from(connection, key, 0)
    run(keeper(system, clock, StreamPolicy("c")))
    after = records(system, "c")
    with system.file.transaction() as connection:
        assert not replace_in(connection, key, listed, 1, pack([b"a"], [b"old"], [0]))
    with system.file.reading() as connection:
        assert data_of(connection, key, listed[0]) is None
    assert records(system, "c") == after


def test_records_without_a_key_stay(system: LocalSystem, clock: ManualClock) -> None:
    system.create_stream(StreamSpec("c", 1, compacted=True))
    stamped(system, "c", (None, "x"), ("a", "1"), (None, "y"), ("a", "2"))
    run(keeper(system, clock, StreamPolicy("c")))
    assert [value for _, _, value in records(system, "c")] == [b"x", b"y", b"2"]


def test_what_is_younger_than_the_lag_is_not_compacted(system: LocalSystem, clock: ManualClock) -> None:
    changelog(system)
    stamped(system, "c", ("a", "3"), ("a", "4"), at_ms=clock.wall_ms())
    run(keeper(system, clock, StreamPolicy("c", min_compaction_lag_ms=HOUR_MS)))
    assert [offset for offset, _, _ in records(system, "c")] == [3, 6, 7, 8, 9]


def test_compaction_waits_until_there_is_as_much_to_do_as_was_done(
    system: LocalSystem, clock: ManualClock
) -> None:
    changelog(system)
    assert run(keeper(system, clock, StreamPolicy("c"), limits=CompactionLimits())) == 0
    run(keeper(system, clock, StreamPolicy("c")))
    stamped(system, "c", ("a", "3"))
    assert run(keeper(system, clock, StreamPolicy("c"))) == 0


def test_a_fenced_container_changes_nothing(system: LocalSystem, clock: ManualClock) -> None:
    changelog(system)
    system.raise_fence([Fence("tidy", 2)])
    before = records(system, "c")
    with pytest.raises(Fenced):
        run(keeper(system, clock, StreamPolicy("c")))
    assert records(system, "c") == before


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreFile]:
    file = StoreFile(tmp_path / "store.db", "c")
    yield file
    file.close()


def settle(store: StoreFile, system: LocalSystem, end: int | None = None) -> dict[bytes, bytes]:
    to = int(system.offsets("c")[0].upcoming) if end is None else end
    store.settle(to, "", lambda low, high: system.changes("c", 0, low, high), unpack_changes)
    return dict(store.scan(None, None))


def test_a_store_file_below_the_horizon_is_rebuilt(
    system: LocalSystem, clock: ManualClock, store: StoreFile
) -> None:
    changelog(system)
    assert settle(store, system, end=3) == {b"a": b"1", b"b": b"1", b"c": b"1"}
    run(keeper(system, clock, StreamPolicy("c")))  # the tombstone of b is gone
    assert settle(store, system) == {b"a": b"2", b"c": b"2", b"d": b"1"}


def test_compaction_during_a_restore_is_noticed(
    system: LocalSystem, clock: ManualClock, store: StoreFile
) -> None:
    changelog(system)
    housekeeper = keeper(system, clock, StreamPolicy("c"))
    times = itertools.count()

    def changes(low: int, high: int) -> Iterator[tuple[bytes, bytes | None]]:
        for number, change in enumerate(system.changes("c", 0, low, high)):
            yield change
            if number == 2 and next(times) == 0:
                run(housekeeper)  # b was read, its tombstone is gone before it is

    store.settle(8, "", changes, unpack_changes)
    assert dict(store.scan(None, None)) == {b"a": b"2", b"c": b"2", b"d": b"1"}


def test_the_state_below_the_horizon_is_refused_rather_than_guessed(
    system: LocalSystem, clock: ManualClock
) -> None:
    changelog(system)
    run(keeper(system, clock, StreamPolicy("c")))
    with pytest.raises(OffsetOutOfRange, match="compacted"):
        list(system.changes("c", 0, 0, 5))
    assert dict(system.changes("c", 0, 0, 8))[b"a"] == b"2"


def test_a_missing_segment_is_damage_not_the_end(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 1))
    for value in ("a", "b", "c"):
        stamped(system, "s", ("k", value))
    with apsw.Connection(str(system.file.path)) as connection:
        connection.execute("DELETE FROM segments WHERE first = 1")
    with pytest.raises(LogCorrupted, match="offset 1 is missing"):
        records(system, "s")


def test_a_container_looks_after_what_its_job_names(system: LocalSystem, clock: ManualClock) -> None:
    for name, compacted in (("in", False), ("out", False), ("job-1-counts-changelog", True)):
        system.create_stream(StreamSpec(name, 2, compacted=compacted))
    config = {
        "stores.counts.factory": "grete.store.sqlite",
        "stores.default.changelog.min.compaction.lag.ms": "7",
        "task.outputs": "local.out",
        "streams.out.retention.ms": "5000",
        "systems.local.streams.in.retention.bytes": "100",
        "streams.in.retention.ms": "-1",
    }
    task = AssignedTask(TaskName("one"), (SystemStreamPartition("local", "in", 0),), 1)
    assert policies(Assignment(JobId("job"), ContainerId("0"), 1, Settings.of(config), (task,))) == [
        StreamPolicy("job-1-counts-changelog", partitions=frozenset({1}), min_compaction_lag_ms=7),
        StreamPolicy("in", partitions=frozenset({0}), retention_bytes=100),
        StreamPolicy("out", retention_ms=5000),
    ]


def test_containers_that_share_an_input_do_not_look_after_the_same_partitions(
    system: LocalSystem, clock: ManualClock
) -> None:
    """Each would merge what the others merge as well; of three, two would work for nothing."""
    system.create_stream(StreamSpec("in", 3))
    for offset in range(80):
        for partition in range(3):
            system.append("in", [Message(b"k", b"v", offset, partition=partition)])
    task = AssignedTask(TaskName("one"), (SystemStreamPartition("local", "in", 1),), 1)
    given = policies(Assignment(JobId("job"), ContainerId("0"), 1, Settings.of({}), (task,)))
    while Housekeeper(system, given, (), clock).step():
        pass
    with system.file.reading() as connection:
        stream = system.stream("in").id
        found = [len(segments_from(connection, PartitionKey(stream, partition), 0)) for partition in range(3)]
    assert found == [80, 1, 80]


def test_a_pipelines_container_looks_after_no_streams_of_other_systems() -> None:
    config = {
        "app.class": "my:App",
        "task.inputs": "local.in,kafka.flights",
        "task.checkpoint.system": "local",
        "systems.kafka.samza.factory": "kafka",
    }
    ssps = tuple(
        SystemStreamPartition(system, name, 0) for system, name in (("local", "in"), ("kafka", "flights"))
    )
    task = AssignedTask(TaskName("one"), ssps, 0)
    assert policies(Assignment(JobId("job"), ContainerId("0"), 1, Settings.of(config), (task,))) == [
        StreamPolicy("in", partitions=frozenset({0}))
    ]
