from __future__ import annotations

from pathlib import Path

import pytest

from grete.application.store import TaskStore
from grete.config.settings import Settings
from grete.serdes import store_serdes
from grete.tasks.stores.file import StoreFile


@pytest.fixture
def store(tmp_path: Path) -> TaskStore:
    file = StoreFile(tmp_path / "store.db", "log")
    rows = [(b"a", b"1"), (b"c", b"3"), (b"e", b"5")]
    file.settle(3, "", lambda start, end: rows[start:end], lambda data: [])
    made = TaskStore(file, store_serdes("s", Settings.of({})))
    made.begin_batch(continues=False)
    return made


def test_reads_see_the_file_and_the_batchs_own_changes(store: TaskStore) -> None:
    store.put("b", 2)
    store.delete("c")
    assert [store.get(key) for key in "abcde"] == [1, 2, None, None, 5]
    assert store.get_all(["a", "b", "c"]) == {"a": 1, "b": 2}


def test_iteration_merges_file_and_changes_in_key_order(store: TaskStore) -> None:
    store.put("b", 2)
    store.put("c", 33)
    store.delete("a")
    store.put("f", 6)
    assert list(store.all()) == [("b", 2), ("c", 33), ("e", 5), ("f", 6)]
    assert list(store.range("b", "e")) == [("b", 2), ("c", 33)]


def test_changes_during_an_iteration_are_not_seen_by_it(store: TaskStore) -> None:
    seen = []
    for key, _ in store.all():
        seen.append(key)
        store.put(key + "x", 0)
    assert seen == ["a", "c", "e"]


def test_a_value_changed_after_get_is_not_stored_without_put(store: TaskStore) -> None:
    store.put("list", [1])
    store.get("list").append(2)
    assert store.get("list") == [1]


def test_undo_takes_back_what_one_message_did_and_no_more(store: TaskStore) -> None:
    store.put("a", 10)
    store.begin_message()
    store.put("a", 11)
    store.put("new", 1)
    store.delete("c")
    store.undo_message()
    assert [store.get(key) for key in ("a", "new", "c")] == [10, None, 3]
    assert store.changes() == {b"a": b"10"}


def test_only_the_last_change_of_a_key_is_written(store: TaskStore) -> None:
    for number in range(100):
        store.put("a", number)
    assert store.changes() == {b"a": b"99"}
