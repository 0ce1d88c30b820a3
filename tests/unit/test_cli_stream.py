"""Streams from the command line: create, append in three forms, dump, tail, list."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grete.cli.main import main

Output = pytest.CaptureFixture[str]


@pytest.fixture
def stream(home: Path, capsys: Output) -> str:
    assert main(["stream", "create", "local.in", "--partitions", "2"]) == 0
    return "local.in"


def dumped(capsys: Output, *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["stream", "dump", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def append(home: Path, lines: str, *words: str) -> int:
    path = home / "lines"
    path.write_text(lines)
    return main(["stream", "append", "local.in", "--from-file", str(path), *words])


def test_append_takes_key_value_partition_and_time(home: Path, stream: str, capsys: Output) -> None:
    lines = '{"key": "a", "value": {"n": 1}, "partition": 1, "timestamp_ms": 5}\n\n{"value": null, "partition": 0}\n'
    assert append(home, lines) == 0
    assert capsys.readouterr().out == "2 records appended to local.in\n"
    first, second = dumped(capsys, "--stream", stream)
    assert (first["partition"], first["key"], first["value"]) == (0, None, None)
    assert second == {"partition": 1, "offset": 0, "key": "a", "value": {"n": 1}, "timestamp_ms": 5}


def test_append_takes_whole_lines_keyed_by_a_field(home: Path, stream: str, capsys: Output) -> None:
    assert append(home, '{"id": "a", "n": 1}\n{"id": 7}\n', "--key-field", "id") == 0
    records = dumped(capsys, "--stream", stream)
    assert {record["key"]: record["value"] for record in records} == {
        "a": {"id": "a", "n": 1},
        "7": {"id": 7},
    }


def test_append_takes_lines_of_text(
    home: Path, stream: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\r\n\xff\n")))
    assert main(["stream", "append", stream, "--lines"]) == 0
    assert [record["value"] for record in dumped(capsys, "--stream", stream)] == ["one", "two", {"hex": "ff"}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 3 is not JSON"),
        ("[]", "line 3 is no JSON object"),
        ('{"vlaue": 1}', "unknown: vlaue"),
        ('{"key": "a"}', "value is missing"),
        ('{"value": 1, "partition": "0"}', "partition is a whole number"),
        ('{"value": 1, "partition": 2}', "partitions 0 to 1"),
    ],
)
def test_append_names_the_line_that_is_wrong_and_what_was_appended_before(
    home: Path, stream: str, capsys: Output, line: str, reason: str
) -> None:
    good = '{"value": 1, "partition": 0}\n'
    assert append(home, good + good + line, "--batch", "2") == 2
    error = capsys.readouterr().err
    assert reason in error
    assert "2 records of earlier lines were appended" in error
    assert len(dumped(capsys, "--stream", stream)) == 2


def test_raw_dump_of_a_stream_is_hex(home: Path, stream: str, capsys: Output) -> None:
    assert append(home, '{"key": "a", "value": "b", "timestamp_ms": 1}\n') == 0
    (record,) = dumped(capsys, "--stream", stream, "--raw")
    assert (record["offset"], record["key"], record["value"]) == (0, "61", "62")


def test_streams_are_listed_with_their_sizes(home: Path, stream: str, capsys: Output) -> None:
    assert append(home, '{"value": 1}\n') == 0
    capsys.readouterr()
    assert main(["stream", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"stream": "local.in", "partitions": 2, "records": 1, "compacted": False}
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("dump", "--stream", "local.nowhere"), "there is no stream 'nowhere'"),
        (("dump", "--stream", "local.in", "--partition", "9"), "partitions 0 to 1"),
        (("dump", "--stream", "in"), "system.stream"),
        (("dump", "--stream", "kafka.in"), "system 'kafka' is not known"),
        (("dump", "--log", "nowhere"), "there is no log 'nowhere'"),
        (("append", "local.nowhere"), "there is no stream 'nowhere'"),
        (("append", "local.in", "--from-file", "/nonexistent"), "No such file"),
        (("create", "local.in", "--partitions", "3"), "exists with 2 partitions"),
    ],
)
def test_what_is_not_there_is_said_without_a_traceback(
    home: Path, stream: str, capsys: Output, words: tuple[str, ...], reason: str
) -> None:
    assert main(["stream", *words]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("grete: ")
    assert reason in error
    assert "Traceback" not in error


def test_looking_creates_nothing(home: Path, capsys: Output) -> None:
    assert main(["stream", "list"]) == 1
    assert main(["status"]) == 0
    assert main(["config", "get", "--job", "nobody"]) == 1
    assert list(home.iterdir()) == []


def test_tail_follows_what_comes(home: Path, stream: str) -> None:
    command = [sys.executable, "-m", "grete.cli.main", "stream", "tail", stream, "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for number in range(3):
                assert append(home, f'{{"value": {number}, "partition": 0}}\n') == 0
                assert json.loads(process.stdout.readline())["value"] == str(number)
        finally:
            process.terminate()
