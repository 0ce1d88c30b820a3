"""Shares of a batch and the workers that take them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from grete.container.run_lock import at_work_in, running_in
from grete.tasks.ranges import Range, SourceOffsets
from grete.tasks.read_plan import SourceOptions
from grete.tasks.share import Places, Shares


def shares(count: int, holders: dict[int, str], directory: str | None) -> Shares:
    return Shares({slot: [(slot, [Range(slot, 0, 1)])] for slot in range(count)}, False, holders, directory)


def test_a_worker_takes_what_it_had_then_what_is_new_then_the_last_of_the_others(tmp_path: Path) -> None:
    with Places(tmp_path).of_a_batch() as directory:
        batch = shares(5, {0: "a", 1: "b", 2: "a", 3: "b"}, directory)
        assert [batch.take("a", number) for number in range(5)] == [0, 2, 4, 3, 1]


def test_two_workers_who_share_evenly_never_take_from_each_other(tmp_path: Path) -> None:
    with Places(tmp_path).of_a_batch() as directory:
        batch = shares(4, {0: "a", 1: "b", 2: "a", 3: "b"}, directory)
        taken = [(worker, batch.take(worker, number)) for number, worker in enumerate("baba")]
        assert {slot: worker for worker, slot in taken} == batch.holders


@pytest.mark.parametrize("order", [range(3), reversed(range(3))])
def test_a_task_that_spark_repeats_gets_its_share_again(tmp_path: Path, order: Any) -> None:
    with Places(tmp_path).of_a_batch() as directory:
        batch = shares(3, {}, directory)
        first = {number: batch.take("a", number) for number in range(3)}
        assert {number: batch.take("another", number) for number in order} == first


def test_every_share_is_taken_once_however_many_try_at_once(tmp_path: Path) -> None:
    with Places(tmp_path).of_a_batch() as directory, ThreadPoolExecutor(16) as pool:
        batch = shares(200, {slot: str(slot % 3) for slot in range(150)}, directory)
        taken = list(pool.map(lambda number: batch.take(str(number % 5), number), range(200)))
    assert sorted(taken) == list(range(200))


def test_without_a_common_file_system_the_number_says_it() -> None:
    batch = shares(3, {0: "a", 2: "a"}, None)
    assert [batch.take("b", number) for number in range(3)] == [0, 1, 2]


def test_a_worker_of_a_run_that_was_given_up_takes_nothing(tmp_path: Path) -> None:
    with Places(at_work_in(tmp_path) / "given up").of_a_batch() as place:
        late = shares(2, {}, place)
        with running_in(tmp_path), Places(at_work_in(tmp_path) / "again").of_a_batch() as again:
            with pytest.raises(FileNotFoundError):
                late.take("a", 0)
            assert shares(2, {}, again).take("a", 1) == 0


def test_a_task_keeps_its_slot_when_others_have_nothing_to_read() -> None:
    ssps = tuple(f"local.in.{partition}" for partition in range(6))
    tasks = tuple((index,) for index in range(6))
    spec = SourceOptions("local", {}, "", ssps, {}, tasks, 10, partitions_at_most=3)
    start = SourceOffsets(dict.fromkeys(ssps, 0))

    def slots(*busy: int) -> dict[int, list[int]]:
        end = SourceOffsets({ssp: int(index in busy) for index, ssp in enumerate(ssps)})
        return {slot: [task for task, _ in group] for slot, group in spec.groups(start, end).items()}

    assert slots(0, 1, 2, 3, 4, 5) == {0: [0, 1], 1: [2, 3], 2: [4, 5]}
    assert slots(1, 4) == {0: [1], 2: [4]}
    assert slots() == {}
