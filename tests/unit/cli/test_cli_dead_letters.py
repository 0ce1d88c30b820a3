"""`grete dead-letters`: what was set aside, why, and sending it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.model.ids import JobId, SystemStreamPartition
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem, Message
from grete.tasks.collector import dead_letter

Output = pytest.CaptureFixture[str]


@pytest.fixture
def letters(home: Path, system: LocalSystem) -> LocalSystem:
    """Two messages of partition 1 that were set aside."""
    system.create_stream(StreamSpec("in", 2))
    system.create_stream(StreamSpec("dead", 1))
    config = {"job.name": "orders", "task.poison.dead-letter.stream": "local.dead"}
    with open_job(JobId("orders"), must_exist=False) as handle:
        handle.stream.write_config(config, run_id="run-1", reason="first")
    ssp = SystemStreamPartition("local", "in", 1)
    for offset, value in ((4, b"\xff\x00"), (7, None)):
        letter = dead_letter("Partition 1", ssp, offset, b"k", value, "KeyError('page')")
        system.append("dead", [Message(None, letter, 1_700_000_000_000, 0)])
    return system


def sent_again(system: LocalSystem) -> list[tuple[bytes, bytes | None, int]]:
    return [
        row
        for _, batch in system.read("in", 1, 0)
        for row in zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True)
    ]


def test_what_was_set_aside_is_listed_with_its_error(letters: LocalSystem, capsys: Output) -> None:
    assert main(["dead-letters", "list", "--job", "orders"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        f"0:{n} - Partition 1 local.in.1 {offset} 2023-11-14 22:13:20 KeyError('page')"
        for n, offset in ((0, 4), (1, 7))
    ]
    assert main(["dead-letters", "list", "--job", "orders", "-o", "json", "-n", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["offset"] == "7"


def test_nothing_is_sent_again_without_execute(letters: LocalSystem, capsys: Output) -> None:
    assert main(["dead-letters", "replay", "--job", "orders", "--all"]) == 0
    assert capsys.readouterr().out == "local.in: 2 messages would be appended; --execute does it\n"
    assert sent_again(letters) == []


def test_a_message_is_sent_again_as_it_was_to_where_it_was(letters: LocalSystem) -> None:
    assert main(["dead-letters", "replay", "--job", "orders", "--number", "0:0", "--execute"]) == 0
    assert sent_again(letters) == [(b"k", b"\xff\x00", 1_700_000_000_000)]


REPLAY = ["dead-letters", "replay", "--job", "orders", "--execute"]


def test_a_second_replay_sends_nothing_twice_unless_it_is_asked_to(
    letters: LocalSystem, capsys: Output
) -> None:
    assert main([*REPLAY, "--number", "0:0"]) == 0
    assert main([*REPLAY, "--all"]) == 0
    assert "1 were replayed before; --again" in capsys.readouterr().out
    assert [value for _, value, _ in sent_again(letters)] == [b"\xff\x00", None]
    assert main([*REPLAY, "--number", "0:0"]) == 0
    assert len(sent_again(letters)) == 2
    assert main([*REPLAY, "--all", "--again"]) == 0
    assert len(sent_again(letters)) == 4
    assert main(["dead-letters", "list", "--job", "orders", "-o", "json"]) == 0
    listed = capsys.readouterr().out.splitlines()[-2:]
    assert [json.loads(line)["replayed"] for line in listed] == [True, True]


@pytest.mark.usefixtures("letters")
def test_a_replay_is_counted_for_programs(capsys: Output) -> None:
    replay = [*REPLAY, "--all", "-o", "json"]
    for appended, before in (({"local.in": 2}, 0), ({}, 2)):
        assert main(replay) == 0
        done = {"executed": True, "appended": appended, "replayed_before": before}
        assert json.loads(capsys.readouterr().out) == done


def test_letters_of_a_stream_that_was_recreated_were_not_replayed(letters: LocalSystem) -> None:
    assert main([*REPLAY, "--all"]) == 0
    letters.delete_stream("dead")
    letters.create_stream(StreamSpec("dead", 1))
    ssp = SystemStreamPartition("local", "in", 1)
    letter = dead_letter("Partition 1", ssp, 9, b"k", b"new", "KeyError('page')")
    letters.append("dead", [Message(None, letter, 1_700_000_000_000, 0)])
    assert main([*REPLAY, "--all"]) == 0
    assert [value for _, value, _ in sent_again(letters)] == [b"\xff\x00", None, b"new"]


@pytest.mark.parametrize(
    ("number", "says"), [("0:9", "no dead letter 0:9"), ("nine", "PARTITION:OFFSET"), ("1:2:3", "PARTITION")]
)
def test_a_dead_letter_that_is_not_there_is_named(
    letters: LocalSystem, capsys: Output, number: str, says: str
) -> None:
    assert main(["dead-letters", "replay", "--job", "orders", "--number", number, "--execute"]) in (1, 2)
    assert says in capsys.readouterr().err
    assert sent_again(letters) == []


def test_a_stream_of_something_else_is_no_stream_of_dead_letters(
    letters: LocalSystem, capsys: Output
) -> None:
    letters.append("dead", [Message(None, b"{", 1, 0)])
    assert main(["dead-letters", "list", "--job", "orders"]) == 1
    assert "record 0:2 of dead is no dead letter" in capsys.readouterr().err
