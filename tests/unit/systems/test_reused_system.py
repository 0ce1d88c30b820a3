"""A system that one user leaves open for the next: by what it was opened with, and closed when nobody comes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import grete
from grete.clock import SystemClock
from grete.config.key_tables.task import MAX_RECORDS
from grete.config.settings import Settings
from grete.errors import StreamNotFound
from grete.systems import reused
from grete.systems.base import System
from grete.systems.reused import ReusedSystem
from grete.testing.waiting import eventually

SOURCES = Path(grete.__file__).parent


def used(keeper: ReusedSystem, home: Path, **config: str) -> System:
    settings = Settings.of({key.replace("__", "."): value for key, value in config.items()})
    with keeper.lent(settings, "local", home, SystemClock()) as system:
        system.streams()
        return system


def is_closed(system: System) -> bool:
    try:
        system.streams()
    except Exception:  # noqa: BLE001 - whatever a closed file says
        return True
    return False


def test_the_next_user_gets_what_the_last_one_has_left_whatever_concerns_tasks_alone(tmp_path: Path) -> None:
    keeper = ReusedSystem()
    first = used(keeper, tmp_path, task__max__records__per__batch="10")
    assert used(keeper, tmp_path, task__max__records__per__batch="20", job__container__count="2") is first
    keeper.close()
    assert is_closed(first)


def test_what_was_opened_with_something_else_is_closed(tmp_path: Path) -> None:
    keeper = ReusedSystem()
    first = used(keeper, tmp_path)
    second = used(keeper, tmp_path, systems__local__path=str(tmp_path / "elsewhere"))
    assert second is not first
    assert is_closed(first)
    third = used(keeper, tmp_path / "home", systems__local__path=str(tmp_path / "elsewhere"))
    assert third is not second
    assert is_closed(second)
    keeper.close()


def test_after_an_error_of_its_user_a_system_is_closed(tmp_path: Path) -> None:
    keeper = ReusedSystem()
    before = used(keeper, tmp_path)
    with (
        pytest.raises(StreamNotFound),
        keeper.lent(Settings.of({}), "local", tmp_path, SystemClock()) as failed,
    ):
        failed.partition_count("none")
    assert failed is before
    assert is_closed(failed)
    assert used(keeper, tmp_path) is not failed
    keeper.close()


def test_one_that_nobody_takes_is_closed_after_a_while(tmp_path: Path) -> None:
    keeper = ReusedSystem(idle_s=0.05)
    first = used(keeper, tmp_path)
    eventually(lambda: is_closed(first), "it is closed")
    assert used(keeper, tmp_path) is not first
    keeper.close()


def test_two_users_at_once_have_one_each_and_leave_one(tmp_path: Path) -> None:
    keeper, clock = ReusedSystem(), SystemClock()
    with (
        keeper.lent(Settings.of({}), "local", tmp_path, clock) as one,
        keeper.lent(Settings.of({}), "local", tmp_path, clock) as two,
    ):
        assert one is not two
    assert is_closed(two)
    assert used(keeper, tmp_path) is one
    keeper.close()


def test_no_system_reads_the_settings_that_concern_tasks_alone() -> None:
    """What is read of a task's settings where systems are, as an attribute of `settings.task` or by its key."""
    assert MAX_RECORDS.name in reused._OF_TASKS
    read = {
        node.attr
        for folder in ("systems", "kafka", "keyed_log", "sqlite_file")
        for path in (SOURCES / folder).rglob("*.py")
        if path.name != "reused.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and (
            (isinstance(node.value, ast.Attribute) and node.value.attr == "task")
            or (isinstance(node.value, ast.Name) and node.value.id == "task")
        )
    }
    assert read == {
        *("transaction_timeout_s", "commit_groups", "checkpoint_system", "written_streams"),
        *("CHECKPOINT_MESSAGE", "CHECKPOINT_SEGMENT", "CHECKPOINT_REPLICATION"),
    }
