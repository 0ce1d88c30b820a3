"""`grete store get|scan`: what stores have at the last commits of their tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.finished_job import Output, changelog_of_totals, opened

from grete.cli.main import main
from grete.operations.store_entries import store_entries
from grete.systems.local.system import LocalSystem, Message
from grete.testing.clock import ManualClock


@pytest.fixture(autouse=True)
def changelog(job: Path, system: LocalSystem) -> str:
    return changelog_of_totals(system)


def printed(capsys: Output, *words: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["store", words[0], "--job", "orders", "totals", *words[1:]]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_key_has_its_last_value_with_the_record_that_wrote_it(capsys: Output) -> None:
    assert printed(capsys, "get", "a") == [
        {"task": "Partition 0", "partition": 0, "offset": 2, "timestamp_ms": 1, "key": "a", "value": 3}
    ]


def test_a_key_that_was_deleted_or_never_there_ends_with_1(capsys: Output) -> None:
    assert printed(capsys, "get", "c", code=1) == []
    assert main(["store", "get", "--job", "orders", "totals", "nothing"]) == 1
    assert "store totals has no entry of 'nothing'" in capsys.readouterr().err


def test_a_scan_has_each_entry_once_task_by_task_and_by_prefix_task_and_number(capsys: Output) -> None:
    assert [(one["key"], one["value"]) for one in printed(capsys, "scan")] == [("a", 3), ("b", 2), ("z", 5)]
    assert [one["key"] for one in printed(capsys, "scan", "--prefix", "b")] == ["b"]
    assert [one["key"] for one in printed(capsys, "scan", "--task", "Partition 1")] == ["z"]
    assert [one["key"] for one in printed(capsys, "scan", "-n", "2")] == ["a", "b"]
    assert printed(capsys, "scan", "--prefix", "nothing") == []


def test_what_has_expired_is_no_entry(system: LocalSystem, changelog: str) -> None:
    clock = ManualClock()
    with opened() as handle:
        handle.stream.change_config({"stores.totals.rocksdb.ttl.ms": "60000"}, run_id="r", reason="")
        now_ms = clock.wall_ms()
        value = (9).to_bytes(8, "big")
        system.append(changelog, [Message(b"new", value, now_ms - 59_000, partition=0)])
        found = [one.key for one in store_entries(handle, "totals", lambda text: True, clock=clock)]
    assert found == ["new"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["get", "--job", "orders", "total", "a"], "the job has no store 'total'"),
        (["scan", "--job", "orders", "totals", "--task", "Partition 9"], "the job has no task 'Partition 9'"),
    ],
)
def test_another_store_or_task_is_refused_by_what_there_is(
    words: list[str], said: str, capsys: Output
) -> None:
    assert main(["store", *words]) == 2
    assert said in capsys.readouterr().err


def test_no_number_of_entries_is_refused(capsys: Output) -> None:
    for number in ("-1", "many"):
        with pytest.raises(SystemExit) as ended:
            main(["store", "scan", "--job", "orders", "totals", "-n", number])
        assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_state_of_a_pipeline_is_sparks(capsys: Output) -> None:
    with opened() as handle:
        handle.stream.change_config({"app.class": "a:B", "task.class": None}, run_id="r")
    assert main(["store", "scan", "--job", "orders", "totals"]) == 2
    assert "is Spark's own" in capsys.readouterr().err
