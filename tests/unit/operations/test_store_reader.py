"""Questions to stores: what a file, the last batch's changes and the changelog say together, at the last commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.unit.finished_job import GROUPER, JOB, changelog_of_totals, opened

from grete.checkpoint.names import checkpoint_log_name
from grete.checkpoint.task_commit import TaskCommit, commit_entries
from grete.errors import ConfigError, CoordinatorUnavailable, JobError, WireError
from grete.model.ids import SystemStreamPartition, TaskName
from grete.operations import store_reader
from grete.operations.job_stores import JobStores
from grete.systems.local.system import LocalSystem, Message
from grete.systems.records import records, write
from grete.tasks.spec import StoreSpec
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.paths import store_identity, store_path
from grete.testing.waiting import eventually

TASK = TaskName("Partition 0")
SSP = SystemStreamPartition("local", "in", 0)
OTHER = SystemStreamPartition("local", "in", 1)
QUESTION: dict[str, Any] = {"key": "a", "prefix": "", "task": None, "limit": 1}
Rows = Mapping[str, int | None]


@pytest.fixture(autouse=True)
def changelog(job: Path, system: LocalSystem) -> str:
    """Of task 0: a 1, b 2, a 3, c 4, c deleted; of task 1: z 5. Both tasks have committed all of it."""
    stream = changelog_of_totals(system)
    commit(system, TASK, {SSP: "2"}, 5, "first")
    commit(system, TaskName("Partition 1"), {OTHER: "2"}, 1, "other")
    return stream


@pytest.fixture
def stores() -> Iterator[JobStores]:
    with closing(JobStores(JOB)) as made:
        yield made


def test_a_key_that_is_too_far_back_is_not_taken_for_missing(
    stores: JobStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_reader, "_LOOKED_AT_MOST", 2)
    assert asked(stores, key="c", task=TASK) == {}, "it was deleted lately"
    with pytest.raises(
        CoordinatorUnavailable, match=r"the key 'a' is not among the last 2 records.*grete store get"
    ):
        asked(stores, key="a", task=TASK)


def test_heartbeats_find_a_thread_however_many_ask(
    stores: JobStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(stores, key="a")
    waits = threading.Event()
    monkeypatch.setattr(store_reader.StoreReader, "read", lambda *_, **__: waits.wait(30))
    askers = [threading.Thread(target=stores.read, args=["totals"], kwargs=QUESTION) for _ in range(8)]
    for one in askers:
        one.start()
    eventually(lambda: stores._turns._value == 0, "all of them wait")  # type: ignore[attr-defined] # its count
    with pytest.raises(CoordinatorUnavailable, match="8 questions to stores are waiting"):
        stores.read("totals", **QUESTION)
    waits.set()
    for one in askers:
        one.join()


@pytest.fixture
def file(system: LocalSystem, changelog: str) -> Callable[..., Path]:
    """Makes the store's file of task 0: the rows of its base, which lie so that it shows who was asked."""

    def make(base: Rows, at: int, pending: Rows | None = None, token: str = "", end: int = 0) -> Path:
        with opened() as handle:
            path = store_path(handle.state_directory / "stores", TASK, "totals")
        identity = store_identity(StoreSpec("totals", changelog, system.stream_uid(changelog)), 0)
        changes = [(key.encode(), _value(value)) for key, value in base.items()]
        with closing(StoreFile(path, identity)) as store:
            store.settle(at, "", lambda start, stop: changes, lambda packed: [])
            if pending is not None:
                keys, values = [k.encode() for k in pending], [_value(v) for v in pending.values()]
                store.set_pending(token, end, write(records(keys, values, [1] * len(keys))))
        return path

    return make


def _value(value: int | None) -> bytes | None:
    return None if value is None else value.to_bytes(8, "big")


def commit(
    system: LocalSystem, task: TaskName, offsets: Mapping[SystemStreamPartition, str], end: int, token: str
) -> None:
    made = TaskCommit(offsets, "lineage", 4, token, {"totals": end})
    system.checkpoint_log(checkpoint_log_name(JOB)).append(commit_entries({task: made}, grouper=GROUPER))


def asked(stores: JobStores, **question: Any) -> dict[str, Any]:
    given = {"key": None, "prefix": "", "task": None, "limit": 100, **question}
    return {row.key: row.value for row in stores.read("totals", **given).entries}


def test_without_a_file_the_changelog_has_it_and_a_long_one_has_no_ranges(
    stores: JobStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(stores, key="a") == {"a": 3}
    assert asked(stores, key="c") == asked(stores, key="nobody") == {}
    [row] = stores.read("totals", key="z", prefix="", task="Partition 1", limit=1).entries
    assert (row.task, row.checkpoint) == ("Partition 1", {"local.in.1": "2"})
    assert asked(stores) == {"a": 3, "b": 2, "z": 5}
    assert asked(stores, prefix="b") == {"b": 2}
    assert asked(stores, limit=1) == {"a": 3}
    monkeypatch.setattr(store_reader, "_LOOKED_AT_MOST", 2)
    with pytest.raises(CoordinatorUnavailable, match=r"no file on this machine: `grete store scan`"):
        asked(stores)


def test_a_file_at_the_commit_says_it_all(stores: JobStores, file: Callable[..., Path]) -> None:
    file({"a": 30, "ab": 31, "b": 20}, 5)
    assert asked(stores, task=TASK) == {"a": 30, "ab": 31, "b": 20}
    assert asked(stores, key="a") == {"a": 30}
    assert asked(stores, prefix="a", task=TASK) == {"a": 30, "ab": 31}
    assert asked(stores, prefix="a", task=TASK, limit=1) == {"a": 30}
    assert asked(stores, key="c", task=TASK) == {}


@pytest.mark.parametrize(
    ("token", "expected"), [("first", {"b": 21, "d": 9}), ("failed", {"a": 30, "b": 20})]
)
def test_the_last_batchs_changes_count_when_its_commit_proves_them(
    stores: JobStores, file: Callable[..., Path], token: str, expected: Rows
) -> None:
    file({"a": 30, "b": 20}, 3, {"a": None, "b": 21, "d": 9}, token, end=5)
    assert asked(stores, task=TASK) == expected


def test_a_file_that_is_behind_has_the_rest_from_the_changelog(
    stores: JobStores, file: Callable[..., Path], system: LocalSystem, changelog: str
) -> None:
    file({"a": 30, "b": 20}, 5)
    later = [("b", None), ("d", 7), ("e", 8)]
    system.append(changelog, [Message(k.encode(), _value(v), 1, partition=0) for k, v in later])
    assert asked(stores, task=TASK) == {"a": 30, "b": 20}, "that is not committed"
    commit(system, TASK, {SSP: "3"}, 7, "second")
    assert asked(stores, task=TASK) == {"a": 30, "d": 7}
    [row] = stores.read("totals", key="d", prefix="", task=TASK, limit=1).entries
    assert row.checkpoint == {"local.in.0": "3"}


def test_a_file_that_is_ahead_is_waited_for_and_marks_alone_are_nothing(
    stores: JobStores,
    file: Callable[..., Path],
    system: LocalSystem,
    changelog: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_reader, "_AHEAD_S", 0.05)
    system.append(changelog, [Message(b"d", _value(7), 1, partition=0)])
    file({"a": 30, "d": 7}, 6)
    with pytest.raises(
        CoordinatorUnavailable, match=r"at offset 6 of its changelog, and its last commit at 5"
    ):
        asked(stores, key="a", task=TASK)
    commit(system, TASK, {SSP: "3"}, 6, "second")
    assert asked(stores, key="a", task=TASK) == {"a": 30}


@pytest.mark.parametrize("fault", ["a flipped value", "no database", "another changelog", "replaced"])
def test_a_file_of_no_use_is_not_believed(stores: JobStores, file: Callable[..., Path], fault: str) -> None:
    path = file({"a": 30}, 5)
    assert asked(stores, key="a") == {"a": 30}
    if fault == "no database":
        path.unlink()
        path.write_bytes(b"this is no database")
    elif fault == "replaced":
        path.unlink()
        file({"a": 31}, 5)
        assert asked(stores, key="a") == {"a": 31}
        return
    else:
        with closing(apsw.Connection(str(path))) as connection:
            what = "kv SET v = x'0000'" if fault == "a flipped value" else "meta SET changelog = 'other'"
            connection.execute(f"UPDATE {what}")
    assert asked(stores, key="a") == {"a": 3}, "the changelog has it"


def test_entries_that_have_expired_are_not_shown(
    stores: JobStores, system: LocalSystem, changelog: str
) -> None:
    with opened() as handle:
        handle.stream.change_config({"stores.totals.rocksdb.ttl.ms": "60000"}, run_id="r", reason="")
    assert asked(stores, key="a") == {}


def test_what_cannot_be_asked_is_said(stores: JobStores, file: Callable[..., Path]) -> None:
    with pytest.raises(JobError, match="no task 'Partition 7'"):
        asked(stores, key="a", task="Partition 7")
    with pytest.raises(ConfigError, match="totals"):
        stores.read("total", key="a", prefix="", task=None, limit=1)
    with opened() as handle:
        handle.stream.change_config({"stores.totals.key.serde": "long"}, run_id="r", reason="")
    with pytest.raises(WireError, match="'x' is none of the serde 'long'"):
        asked(stores, key="x")
    with pytest.raises(WireError, match="no order as text"):
        asked(stores, prefix="x")
