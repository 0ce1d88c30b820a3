"""A query that subscribes to several topics, as a query with a source for each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grete.spark.lineage.parted_sources import parts_of
from grete.spark.lineage.query_files import copy_all
from grete.spark.lineage.source_log import SparkLogUnreadable, read_beginning, read_planned

FILES = b'{"logOffset":4}'
Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A location with one record of the offset log, of these sources."""

    def make(*ends: bytes, version: bytes = b"v1") -> Path:
        query = tmp_path / "query"
        lines = (
            list(ends) if version == b"v1" else [b"%d:%s" % line for line in reversed(list(enumerate(ends)))]
        )
        for path, content in {
            "offsets/7": b"\n".join([version, b'{"batchWatermarkMs":5}', *lines]),
            "offsets/.7.crc": b"sum",
            "commits/7": b'v1\n{"nextBatchWatermarkMs":6}',
            "commits/.7.crc": b"sum of a commit",
            "metadata": b'{"id":"one"}',
            "state/0/3/1.delta": b"state",
            "sources/0/0": b'v1\n{"b":{"0":1,"1":2},"a":{"0":3}}',
            "sources/0/.0.crc": b"sum",
            "sources/1/0": b"v1\nfile a",
            "sources/1/.0.crc": b"sum of a list",
            "sources/1/1": b"v1\nfile b",
        }.items():
            (query / path).parent.mkdir(parents=True, exist_ok=True)
            (query / path).write_bytes(content)
        return query

    return make


@pytest.mark.parametrize("version", [b"v1", b"v2"])
def test_each_topic_has_a_line_and_a_beginning_of_its_own_and_what_is_behind_it_moves(
    written: Written, tmp_path: Path, version: bytes
) -> None:
    query = written(b'{"b":{"0":10,"1":20},"a":{"0":30}}', FILES, version=version)
    parts = parts_of(query, ["kafka.a", "kafka.b", ""])
    assert parts is not None
    copy_all(query, tmp_path / "copy", parts=parts)
    copy, planned = tmp_path / "copy", read_planned(tmp_path / "copy", 7)
    assert planned.ends == {"0": b'{"a":{"0":30}}', "1": b'{"b":{"0":10,"1":20}}', "2": FILES}
    assert (planned.version, planned.watermark_ms) == (version.decode(), 5)
    assert [read_beginning(copy, str(number)) for number in range(3)] == [
        b'{"a":{"0":3}}',
        b'{"b":{"0":1,"1":2}}',
        b"file a",
    ]
    found = {str(path.relative_to(copy)): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert found["sources/2/1"] == b"v1\nfile b"
    assert found["state/0/3/1.delta"] == b"state"
    sums = {path: content for path, content in found.items() if path.endswith(".crc")}
    assert sums == {"commits/.7.crc": b"sum of a commit", "sources/2/.0.crc": b"sum of a list"}, (
        "a sum of what the file was would make Spark refuse the file"
    )


def test_a_source_that_has_no_offset_yet_has_none_for_any_of_its_topics(
    written: Written, tmp_path: Path
) -> None:
    query = written(b'{"b":{"0":10},"a":{"0":30}}', FILES)
    (query / "offsets" / "6").write_bytes(b"v1\n{}\n-\n-")
    (query / "offsets" / "5").write_bytes(b'v1\n{}\n{"a":{"0":8}}\n-')
    copy_all(query, tmp_path / "copy", parts=parts_of(query, ["kafka.b", "kafka.a", ""]))
    assert list(read_planned(tmp_path / "copy", 6).ends.values()) == [None, None, None]
    known_later = read_planned(tmp_path / "copy", 5).ends
    assert known_later == {"0": b'{"b":{}}', "1": b'{"a":{"0":8}}', "2": None}


@pytest.mark.parametrize(
    "sources",
    [
        ["kafka.a", ""],
        ["kafka.a", "kafka.c", ""],
        ["kafka.a", "", "kafka.b"],
        ["", "kafka.a", "kafka.b"],
        ["kafka.a", "kafka.b"],
        ["kafka.a", "kafka.b", "", "kafka.c"],
        ["kafka.a", "kafka.a", "kafka.b", ""],
        [],
    ],
)
def test_sources_that_are_not_the_querys_part_nothing(written: Written, sources: list[str]) -> None:
    assert parts_of(written(b'{"b":{"0":10},"a":{"0":30}}', FILES), sources) is None


@pytest.mark.parametrize(
    "end", [b'{"a":{"0":30}}', b"-", b"a text", b"[1]", b'{"tick":3,"partitions":{}}', b'{"a":{},"b":3}']
)
def test_what_is_of_one_topic_or_not_kafkas_stays_as_it_is(written: Written, end: bytes) -> None:
    assert parts_of(written(end, FILES), ["kafka.a", ""]) is None


def test_sources_that_have_names_part_nothing(written: Written) -> None:
    query = written(b"")
    (query / "offsets" / "7").write_bytes(b'v2\n{}\nclicks:{"a":{"0":1},"b":{"0":1}}')
    assert parts_of(query, ["kafka.a", "kafka.b"]) is None


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("offsets/3", b"v9\n{}"),
        ("offsets/3", b"v1\n{}\n{\n-"),
        ("offsets/3", b"v1\n{}\n[1]\n-"),
        ("sources/0/0", b"v1\n{"),
    ],
)
def test_a_damaged_file_is_refused_by_name(
    written: Written, tmp_path: Path, file: str, content: bytes
) -> None:
    query = written(b'{"b":{"0":10},"a":{"0":30}}', FILES)
    parts = parts_of(query, ["kafka.b", "kafka.a", ""])
    (query / file).write_bytes(content)
    with pytest.raises(SparkLogUnreadable, match=file):
        copy_all(query, tmp_path / "copy", parts=parts)
