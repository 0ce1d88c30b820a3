"""Headers of messages: in, out, kept by streams, and shown."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import grete
from grete.cli.main import main
from grete.clock import SystemClock
from grete.errors import ProcessingError
from grete.model.streams import StreamSpec
from grete.systems.local.compactor import CompactionLimits, Compactor
from grete.systems.local.segment_rows import PartitionKey
from grete.systems.local.system import LocalSystem, Message
from grete.systems.records import headers_of, join, pieces, records, rows_of, sparse, unpack, write
from grete.testing.job import JobUnderTest

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
}
TRACE = [("trace", b"\x00\xff"), ("trace", None), ("source", b"web")]


def pass_on(
    envelope: grete.IncomingMessageEnvelope,
    collector: grete.MessageCollector,
    coordinator: grete.TaskCoordinator,
) -> None:
    if envelope.message == "poison":
        raise ValueError(envelope.message)
    collector.send("local.out", envelope.message, headers=envelope.headers)


def test_a_task_gets_headers_and_sends_them_on() -> None:
    with JobUnderTest(pass_on, CONFIG) as job:
        job.send("local.in", 1, headers=TRACE)
        job.send("local.in", 2)
        job.send("local.in", 3, headers=[("a", b"b")])
        job.run()
        assert [(one.message, list(one.headers)) for one in job.outputs("local.out")] == [
            (1, TRACE),
            (2, []),
            (3, [("a", b"b")]),
        ]


def test_headers_are_written_as_texts_bytes_or_nothing_from_pairs_or_a_mapping() -> None:
    def send(envelope: Any, collector: grete.MessageCollector, coordinator: Any) -> None:
        collector.send("local.out", 1, headers={"name": "Bär", "raw": b"\x01", "none": None})
        collector.send("local.out", 2, headers=[("twice", "a"), ("twice", "b")])
        collector.send("local.out", 3, headers={})

    with JobUnderTest(send, CONFIG) as job:
        job.send("local.in", 0)
        job.run()
        assert [list(one.headers) for one in job.outputs("local.out")] == [
            [("name", "Bär".encode()), ("raw", b"\x01"), ("none", None)],
            [("twice", b"a"), ("twice", b"b")],
            [],
        ]


@pytest.mark.parametrize("headers", [{"a": 1}, {1: "a"}, [("a", ["b"])]])
def test_what_is_no_header_fails_the_message(headers: Any) -> None:
    def send(envelope: Any, collector: grete.MessageCollector, coordinator: Any) -> None:
        collector.send("local.out", 1, headers=headers)

    with JobUnderTest(send, CONFIG) as job:
        job.send("local.in", 0)
        with pytest.raises(ProcessingError, match="a name is a text, and a value bytes, text or None"):
            job.run()


def test_a_dead_letter_keeps_its_headers_and_what_it_sent_is_undone_with_them() -> None:
    def send_and_fail(envelope: Any, collector: grete.MessageCollector, coordinator: Any) -> None:
        collector.send("local.out", envelope.message, headers={"number": str(envelope.message)})
        if envelope.message == 2:
            raise ValueError("two")

    poison = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
    with JobUnderTest(send_and_fail, CONFIG | poison) as job:
        for number in (1, 2, 3):
            job.send("local.in", number, headers=TRACE)
        job.run()
        assert [list(one.headers) for one in job.outputs("local.out")] == [
            [("number", b"1")],
            [("number", b"3")],
        ]
        [letter] = job.dead_letters()
        assert letter["headers_base64"] == [["trace", "AP8="], ["trace", None], ["source", "d2Vi"]]


def test_a_segment_without_headers_is_packed_as_it_always_was() -> None:
    batch = records([b"k"], [b"v"], [7])
    assert batch.schema.names == ["key", "value", "timestamp_ms"]
    assert sparse(5, unpack(write(batch))).schema.names == ["key", "value", "timestamp_ms", "offset"]


def test_segments_with_and_without_headers_are_joined() -> None:
    plain = records([b"a"], [b"1"], [1])
    with_some = records([b"b", b"c"], [b"2", b"3"], [2, 3], [TRACE, ()])
    joined = join([sparse(4, plain), sparse(5, with_some), sparse(7, plain)])
    assert [row[0] for row in rows_of(0, joined)] == [4, 5, 6, 7]
    assert headers_of(unpack(write(joined))) == [None, TRACE, None, None]
    assert [list(row[4]) for row in rows_of(0, joined.slice(1, 1))] == [TRACE]


def test_large_headers_count_for_the_size_of_a_segment() -> None:
    batch = records([b"k"] * 100, [b"v"] * 100, [1] * 100, [[("h", b"x" * 1_000)]] * 100)
    parts = list(pieces(batch, 20_000))
    assert len(parts) >= 5
    assert pa.Table.from_batches(parts).num_rows == 100


def test_compaction_keeps_the_headers_of_what_it_keeps(system: LocalSystem) -> None:
    system.create_stream(StreamSpec("kept", 1, compacted=True))
    for number in range(40):
        headers = [("n", b"%d" % number)] if number % 2 else []
        system.append("kept", [Message(b"%d" % (number % 5), b"v", number, headers=headers)])
    limits = CompactionLimits(min_dirty_bytes=1)
    compactor = Compactor(system.file, PartitionKey(system.stream("kept").id, 0), [], limits)
    assert any(list(compactor.run(before_ms=100)))
    kept = [row for first, batch in system.read("kept", 0, 0) for row in rows_of(first, batch)]
    assert [row[0] for row in kept] == [35, 36, 37, 38, 39]
    assert [list(row[4]) for row in kept] == [[("n", b"35")], [], [("n", b"37")], [], [("n", b"39")]]


def test_records_are_appended_and_dumped_with_headers(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(LocalSystem(home / "local", SystemClock())) as local:
        local.create_stream(StreamSpec("in", 1))
    lines = tmp_path / "lines"
    lines.write_text('{"value": "a", "headers": {"trace": "t1", "none": null}}\n{"value": "b"}\n')
    assert main(["stream", "append", "local.in", "--from-file", str(lines)]) == 0
    assert main(["stream", "dump", "--stream", "local.in"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines()[1:])
    assert first["headers"] == [["trace", "t1"], ["none", None]]
    assert "headers" not in second
