"""`grete store get|scan`: what stores have at the last commits of their tasks."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.finished_job import Output, changelog_of_totals, opened

from grete.cli.main import main
from grete.operations import store_entries as entries
from grete.operations.store_entries import store_entries
from grete.systems.local.system import LocalSystem, Message
from grete.tasks.spec import StoreSpec
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.paths import store_identity, store_path
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


@pytest.mark.parametrize("stretch", [1, 2, 20_000])
def test_a_key_is_looked_for_from_the_end(
    stretch: int, capsys: Output, system: LocalSystem, changelog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "_STRETCH", stretch)
    system.append(changelog, [Message(b"late", (7).to_bytes(8, "big"), 9, partition=1)])
    assert [one["value"] for one in printed(capsys, "get", "a")] == [3]
    assert [one["value"] for one in printed(capsys, "get", "late")] == [7]
    assert printed(capsys, "get", "c", code=1) == [], "it was deleted"
    assert printed(capsys, "get", "nothing", code=1) == []


@pytest.mark.parametrize("file", ["up to date", "behind", "of another changelog", "damaged"])
def test_a_stores_file_that_has_no_such_key_spares_what_came_before_it(
    file: str, capsys: Output, system: LocalSystem, changelog: str
) -> None:
    """The file is made to lie, so that it shows which of the two was read."""
    with opened() as handle:
        path = store_path(handle.state_directory / "stores", "Partition 0", "totals")
    spec = StoreSpec("totals", changelog, system.stream_uid(changelog))
    identity = store_identity(spec, 0) if file != "of another changelog" else "another"
    position = int(system.offsets(changelog)[0].upcoming)
    with closing(StoreFile(path, identity)) as store:
        store.settle(0 if file == "behind" else position, "", lambda first, last: [], lambda packed: [])
    if file == "damaged":
        path.write_bytes(b"this is no database")
    system.append(changelog, [Message(b"late", (7).to_bytes(8, "big"), 9, partition=0)])
    assert [one["value"] for one in printed(capsys, "get", "late")] == [7]
    found = printed(capsys, "get", "a", code=1 if file == "up to date" else 0)
    assert [one["value"] for one in found] == ([] if file == "up to date" else [3])


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
