from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from grete.clock import SystemClock
from grete.errors import Fenced, LogCorrupted, OffsetOutOfRange, StreamError, StreamNotFound
from grete.keyed_log.base import Entry
from grete.model.fence import Fence
from grete.model.ids import SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.spark.pipeline.planned_source import LocalReader
from grete.systems.admin import KeyOrigin
from grete.systems.commit_group import CommitGroup, SegmentWrite
from grete.systems.key_hashes import murmur2
from grete.systems.local.stream_rows import StreamInfo
from grete.systems.local.system import LocalSystem, Message
from grete.systems.partitioner import partition_of
from grete.systems.records import pack
from grete.tasks.ranges import Range, SourceOffsets
from grete.tasks.read_plan import SourceOptions, share_out


def segment(stream: str, *values: bytes) -> SegmentWrite:
    return SegmentWrite(stream, 0, len(values), pack([None] * len(values), list(values), [1] * len(values)))


def values(system: LocalSystem, stream: str, start: int = 0, end: int | None = None) -> list[bytes]:
    return [v for _, batch in system.read(stream, 0, start, end) for v in batch.column(1).to_pylist()]


def test_what_is_appended_is_read_from_any_offset(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 1))
    for number in range(5):
        system.append("s", [Message(None, b"%d" % (2 * number + i), 1) for i in range(2)])
    assert values(system, "s", 3, 8) == [b"3", b"4", b"5", b"6", b"7"]
    assert system.offsets("s")[0].newest == "9"


def test_a_key_always_goes_to_the_partition_kafka_would_choose(system: LocalSystem) -> None:
    assert [murmur2(key) for key in (b"21", b"foobar", b"a-little-bit-long-string")] == [
        (number + (1 << 32)) % (1 << 32) for number in (-973932308, -790332482, -985981536)
    ]
    system.create_stream(StreamSpec("s", 3))
    system.append("s", (Message(b"k%d" % (i % 5), b"v", 1) for i in range(50)))
    for partition in range(3):
        for _, batch in system.read("s", partition, 0):
            assert {partition_of(key, 3) for key in batch.column(0).to_pylist()} == {partition}


def test_offsets_that_are_not_there_are_refused_with_the_range(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 1))
    system.append("s", [Message(None, b"v", 1)])
    with pytest.raises(OffsetOutOfRange, match="0 to 0"):
        values(system, "s", 5)
    with pytest.raises(StreamNotFound, match="grete stream create"):
        system.offsets("other")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x" * 250])
def test_a_stream_has_a_plain_name(system: LocalSystem, name: str) -> None:
    with pytest.raises(StreamError):
        system.create_stream(StreamSpec(name, 1))


def test_creating_again_is_fine_and_with_another_shape_is_not(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 2))
    system.create_stream(StreamSpec("s", 2))
    with pytest.raises(StreamError, match="2 partitions"):
        system.create_stream(StreamSpec("s", 3))
    system.ensure_stream(StreamSpec("s", 4))
    assert sorted(system.offsets("s")) == [0, 1, 2, 3]


def test_a_system_is_opened_and_looked_at_while_another_program_writes(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 2))
    with system.file.transaction():
        other = LocalSystem(system.directory, SystemClock())
        assert sorted(other.offsets("s")) == [0, 1]
        other.close()


def test_partitions_are_added_and_know_where_their_keys_were(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 2))
    system.append("s", [Message(None, b"v", 1, partition=0)] * 3)
    system.add_partitions("s", 2)
    system.add_partitions("s", 4)
    system.append("s", [Message(None, b"v", 1, partition=2)])
    system.add_partitions("s", 8)
    origins = {partition: held.origin for partition, held in system.offsets("s").items()}
    assert origins == {
        0: None,
        1: None,
        2: KeyOrigin(0, "3"),
        3: KeyOrigin(1, "0"),
        4: KeyOrigin(0, "3"),
        5: KeyOrigin(1, "0"),
        6: KeyOrigin(2, "1"),
        7: KeyOrigin(3, "0"),
    }


def test_partitions_that_are_no_multiple_have_no_origin(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 2))
    system.add_partitions("s", 5)
    assert [held.origin for held in system.offsets("s").values()] == [None] * 5


def test_partitions_are_never_taken_away(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 4))
    with pytest.raises(StreamError, match=r"has 4 partitions and cannot have 2.*would be lost"):
        system.add_partitions("s", 2)
    with pytest.raises(StreamNotFound):
        system.add_partitions("other", 2)
    assert system.partition_count("s") == 4


def test_a_program_that_appends_while_the_stream_grows_uses_the_new_partitions(tmp_path: Path) -> None:
    class GrowsMeanwhile(LocalSystem):
        """The stream grows after this program has looked at it and before it writes."""

        def stream(self, name: str) -> StreamInfo:
            info = super().stream(name)
            self.add_partitions(name, 8)
            return info

    system = GrowsMeanwhile(tmp_path / "local", SystemClock())
    system.create_stream(StreamSpec("s", 1))
    assert system.append("s", [Message(b"key%d" % i, b"v", 1) for i in range(50)]) == 50
    for partition in range(8):
        for _, batch in system.read("s", partition, 0):
            assert {partition_of(key, 8) for key in batch.column(0).to_pylist()} == {partition}
    assert sum(int(held.upcoming) for held in system.offsets("s").values()) == 50
    system.close()


def test_a_commit_group_is_visible_as_a_whole_or_not_at_all(system: LocalSystem) -> None:
    for name in ("out", "changes"):
        system.create_stream(StreamSpec(name, 1))
    group = CommitGroup(
        [Fence("c", 1)], [segment("out", b"o"), segment("changes", b"c")], "checkpoints", [Entry(b"t", b"1")]
    )
    assert system.commit(group) == {("out", 0): 1, ("changes", 0): 1}
    system.raise_fence([Fence("c", 2)])
    with pytest.raises(Fenced):
        system.commit(group)
    broken = CommitGroup([Fence("c", 2)], [segment("out", b"o"), segment("nowhere", b"c")], "checkpoints", [])
    with pytest.raises(StreamNotFound):
        system.commit(broken)
    assert values(system, "out") == [b"o"]
    assert [record.value for record in system.checkpoint_log("checkpoints").read()] == [b"1"]


def test_a_damaged_segment_is_named(tmp_path: Path, system: LocalSystem) -> None:
    system.create_stream(StreamSpec("s", 1))
    system.append("s", [Message(None, b"v" * 50, 1)])
    with apsw.Connection(str(tmp_path / "local" / "streams.db")) as other:
        other.execute("UPDATE segments SET data = zeroblob(length(data))")
    with pytest.raises(LogCorrupted, match="s partition 0, offsets 0 to 0"):
        values(system, "s")


def test_rows_are_shared_out_fairly_and_completely() -> None:
    assert share_out({"a": 100, "b": 10, "c": 0}, 60) == {"a": 50, "b": 10, "c": 0}
    assert share_out({"a": 5, "b": 5}, 100) == {"a": 5, "b": 5}
    assert sum(share_out({"a": 100, "b": 100, "c": 100}, 100).values()) == 100


def test_where_there_are_fewer_records_than_partitions_each_has_its_turn() -> None:
    available = {"a": 5_000, "b": 3, "c": 0, "d": 7}
    taken = [share_out(available, 2, turn) for turn in range(3)]
    assert taken[0] == {"a": 1, "b": 1, "c": 0, "d": 0}
    assert {one: sum(turn[one] for turn in taken) for one in available} == {"a": 2, "b": 2, "c": 0, "d": 2}


def spec_of(system: LocalSystem, **options: object) -> SourceOptions:
    return SourceOptions(
        system="local",
        config={},
        home=str(system.directory.parent),
        ssps=("local.a.0", "local.b.0"),
        starting_offsets={"local.a.0": 0, "local.b.0": 0},
        tasks=((0, 1), (1,)),
        max_records=10,
        **options,  # type: ignore[arg-type]
    )


def reader(system: LocalSystem, **options: object) -> LocalReader:
    return LocalReader(SourceOptions.from_json(spec_of(system, **options).to_json()))


def test_batches_are_bounded_and_every_task_gets_its_ranges(system: LocalSystem) -> None:
    for name in ("a", "b"):
        system.create_stream(StreamSpec(name, 1))
        system.append(name, [Message(None, b"v", 1)] * 20)
    source = reader(system)
    start = source.initialOffset()
    end = source.latestOffset(start, source.getDefaultReadLimit())
    assert end["offsets"] == {"local.a.0": 5, "local.b.0": 5}
    assert source.partitions(start, end) == []  # Spark gets no rows: the driver hands the ranges out
    groups = spec_of(system).groups(SourceOffsets.from_document(start), SourceOffsets.from_document(end))
    everything = [one for group in groups.values() for one in group]
    shared = Range(1, 0, 5)  # the broadcast partition, once for each task
    assert everything == [(0, [Range(0, 0, 5), shared]), (1, [shared])]


def test_a_bootstrap_stream_is_read_to_its_end_first(system: LocalSystem) -> None:
    for name in ("a", "b"):
        system.create_stream(StreamSpec(name, 1))
        system.append(name, [Message(None, b"v", 1)] * 15)
    source = reader(system, bootstrap=("local.b",))
    offset, seen = source.initialOffset(), []
    for _ in range(3):
        offset = source.latestOffset(offset, source.getDefaultReadLimit())
        seen.append((offset["offsets"]["local.a.0"], offset["offsets"]["local.b.0"]))
    assert seen == [(0, 10), (0, 15), (10, 15)]


def test_two_processes_see_each_others_appends(tmp_path: Path, system: LocalSystem) -> None:
    other = LocalSystem(tmp_path / "local", SystemClock())
    other.create_stream(StreamSpec("s", 1))
    system.append("s", [Message(None, b"v", 1)])
    assert values(other, "s") == [b"v"]
    other.close()


def test_sizes_of_ranges_are_known_without_reading_and_a_range_can_be_cut_to_one(tmp_path: Path) -> None:
    system = LocalSystem(tmp_path / "sized", SystemClock())
    system.create_stream(StreamSpec("in", 1))
    ssp = SystemStreamPartition("local", "in", 0)
    for size in (100, 10_000, 100):
        system.append("in", [Message(b"k", b"x" * size, 1) for _ in range(10)])
    size = system.sizes({ssp: (0, 30)})[ssp]
    assert 102_000 < size < 110_000
    assert system.sizes({ssp: (10, 20)})[ssp] < size
    assert sum(system.sizes({ssp: part})[ssp] for part in ((0, 5), (5, 15), (15, 30))) == pytest.approx(
        size, rel=0.01
    )
    assert system.end_within(ssp, (0, 30), 2 * size) == 30
    assert 14 <= system.end_within(ssp, (0, 30), size // 2) <= 16
    assert system.end_within(ssp, (12, 30), 1) == 13
    assert system.sizes({ssp: (30, 30)})[ssp] == 0
    system.close()
