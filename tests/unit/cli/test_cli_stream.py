"""Streams from the command line: create, append in three forms, dump, tail, list."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grete.cli.main import main
from grete.errors import StreamUnreachable
from grete.systems.local.system import LocalSystem

Output = pytest.CaptureFixture[str]


@pytest.fixture
def stream(home: Path, capsys: Output) -> str:
    assert main(["stream", "create", "local.in", "--partitions", "2"]) == 0
    capsys.readouterr()
    return "local.in"


def dumped(capsys: Output, *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["stream", "dump", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def append(home: Path, lines: str, *words: str) -> int:
    path = home / "lines"
    path.write_text(lines)
    return main(["stream", "append", "local.in", "--from-file", str(path), *words])


def test_create_says_what_was_created_and_what_was_there_already(home: Path, capsys: Output) -> None:
    for said in ("created with 2 partitions", "is there already with 2 partitions"):
        assert main(["stream", "create", "local.in", "--partitions", "2"]) == 0
        assert capsys.readouterr().out == f"local.in: {said}\n"
    assert main(["stream", "create", "local.last", "--compacted"]) == 0
    assert capsys.readouterr().out == "local.last: created with 1 partition, compacted\n"
    documents = []
    for _ in range(2):
        assert main(["stream", "create", "local.other", "-o", "json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    shape = {"stream": "local.other", "partitions": 1}
    assert documents == [
        {**shape, "compacted": False, "created": True},
        {**shape, "compacted": None, "created": False},
    ]


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
        ("{", "it is not JSON"),
        ("[]", "it is no JSON object"),
        ('{"vlaue": 1}', "a record has key, value, partition, timestamp_ms, headers (unknown: vlaue)"),
        ('{"key": "a"}', "a record has key, value, partition, timestamp_ms, headers (value is missing)"),
        ('{"value": 1, "partition": "0"}', "partition is a whole number"),
        ('{"value": 1, "partition": 2}', "in has partitions 0 to 1, not 2"),
        ('{"value": 1, "partition": -1}', "in has partitions 0 to 1, not -1"),
        (f'{{"value": {"[" * 900}{"]" * 900}}}', "a value cannot be written as JSON"),
        (f'{{"value": {"[" * 5000}{"]" * 5000}}}', "it is not JSON"),
    ],
)
def test_append_names_file_and_line_that_are_wrong_and_what_was_appended_before(
    home: Path, stream: str, capsys: Output, line: str, reason: str
) -> None:
    good = '{"value": 1, "partition": 0}\n'
    assert append(home, good + good + line, "--batch", "2") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"grete: {home / 'lines'}, line 3: {reason}")
    assert "2 records of earlier lines were appended" in error
    assert len(dumped(capsys, "--stream", stream)) == 2


def test_append_names_the_standard_input(
    stream: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"value": 1}\n\n{"value": 1, "partition": 2}\n'))
    )
    assert main(["stream", "append", stream]) == 2
    assert capsys.readouterr().err.startswith(
        "grete: standard input, line 3: in has partitions 0 to 1, not 2"
    )


def test_append_takes_partitions_that_were_added_while_it_waited_for_lines(
    stream: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> Iterator[bytes]:
        yield b'{"value": 1, "partition": 1}\n'
        assert main(["stream", "grow", stream, "--partitions", "3"]) == 0
        yield b'{"value": 2, "partition": 2}\n'
        yield b""

    waited_for = lines()
    monkeypatch.setattr(
        "sys.stdin", SimpleNamespace(buffer=SimpleNamespace(readline=lambda _: next(waited_for)))
    )
    assert main(["stream", "append", stream, "--batch", "1"]) == 0
    assert [record["partition"] for record in dumped(capsys, stream)] == [1, 2]


def test_a_system_that_refuses_records_is_no_wrong_usage(
    home: Path, stream: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise StreamUnreachable("no answer")

    monkeypatch.setattr(LocalSystem, "append", refuse)
    assert append(home, '{"value": 1}\n') == 1
    assert capsys.readouterr().err == "grete: no answer; 0 records of earlier lines were appended\n"


def test_dump_and_tail_take_the_stream_in_either_form_and_once(
    home: Path, stream: str, capsys: Output
) -> None:
    assert append(home, '{"value": 1}\n') == 0
    for command in ("dump", "tail"):
        seen = []
        for words in ([stream], ["--stream", stream]):
            capsys.readouterr()
            assert main(["stream", command, *words]) == 0
            seen.append(json.loads(capsys.readouterr().out)["value"])
        assert seen == ["1", "1"]
        with pytest.raises(SystemExit):
            main(["stream", command, stream, "--stream", stream])
        assert "argument --stream: not allowed with argument STREAM" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            main(["stream", command, stream, "--log", "some"])
        assert "argument --log: not allowed with argument STREAM" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["dump", "tail"])
def test_without_a_stream_and_a_job_it_is_said_how_either_is_named(
    home: Path, stream: str, capsys: Output, command: str
) -> None:
    assert main(["stream", command]) == 2
    error = capsys.readouterr().err
    assert "no stream is named, as SYSTEM.STREAM or --stream SYSTEM.STREAM" in error
    assert "name the job with --job or --config" in error


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
        (("dump", "--stream", "kafka.in"), "system 'kafka' is not known"),
        (("dump", "--log", "nowhere"), "there is no log 'nowhere'"),
        (("append", "local.nowhere"), "there is no stream 'nowhere'"),
        (("create", "local.in", "--partitions", "3"), "exists with 2 partitions"),
    ],
)
def test_what_is_not_there_is_said_without_a_traceback(
    home: Path, stream: str, capsys: Output, words: tuple[str, ...], reason: str
) -> None:
    assert main(["stream", *words]) == 1
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
