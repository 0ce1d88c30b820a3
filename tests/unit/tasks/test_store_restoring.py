"""What a store reads of its changelog before its task goes on is in the log and in the task's metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import grete
from grete.systems.base import Change
from grete.tasks.stores.file import StoreFile
from grete.tasks.stores.restoring import Restoring
from grete.testing.job import JobUnderTest
from grete.wire.metric_values import TASK_GROUP

CONFIG = {
    "task.inputs": "local.in",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "stores.last.factory": "grete.store.sqlite",
    "stores.last.key.serde": "string",
    "stores.last.msg.serde": "json",
}
TASK = "Partition 0"
NAME = "store 'last' of task 'Partition 0'"


class Last(grete.StreamTask):
    """Keeps the last message of each key."""

    def init(self, context: grete.TaskContext) -> None:
        self.last = context.store("last")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        self.last.put(envelope.key, envelope.message)


def changes(start: int, end: int) -> Iterator[Change]:
    return ((b"%d" % i, b"value") for i in range(start, end))


def restored(path: Path, position: int, clock: Iterator[float]) -> list[tuple[int, float]]:
    """What was said of bringing a file there."""
    said: list[tuple[int, float]] = []
    file = StoreFile(
        path, "log", restoring=Restoring(NAME, lambda: next(clock), lambda *one: said.append(one))
    )
    file.settle(position, "", changes, lambda pending: ())
    file.close()
    return said


def test_a_store_that_was_lost_counts_what_it_read_again_and_one_that_is_there_nothing() -> None:
    with JobUnderTest(Last, CONFIG) as job:
        for number in range(3):
            job.send("local.in", number, key=f"key{number}", partition=0)
        job.run()
        assert job.metrics(TASK)[TASK_GROUP]["restored-messages"] == 0
        for lose_stores, read in ((False, 0), (True, 4)):
            job.restart(lose_stores=lose_stores)
            job.send("local.in", 9, key="key0", partition=0)
            job.run()
            assert job.metrics(TASK)[TASK_GROUP]["restored-messages"] == read


def test_a_long_restore_is_in_the_log_before_and_after(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "grete.stores")
    assert restored(tmp_path / "one.db", 12_000, iter([5.0, 7.5])) == [(12_000, 2.5)]
    assert caplog.messages == [
        f"{NAME} is being restored: offsets 0 to 11999 of its changelog",
        f"{NAME} is restored: 12000 changes, offsets 0 to 11999 of its changelog, in 2.5 s",
    ]


def test_a_few_changes_are_in_the_log_only_when_they_took_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "grete.stores")
    restored(tmp_path / "one.db", 20, iter([5.0, 5.5]))
    assert not caplog.messages
    restored(tmp_path / "one.db", 25, iter([5.0, 9.0]))
    assert caplog.messages == [f"{NAME} is restored: 5 changes, offsets 20 to 24 of its changelog, in 4.0 s"]
    assert restored(tmp_path / "one.db", 25, iter([])) == []


def test_a_copy_that_is_no_good_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "grete.stores")
    (tmp_path / "one.db").write_bytes(b"this is no database, and it is long enough to be seen as one" * 20)
    assert [read for read, _ in restored(tmp_path / "one.db", 3, iter([0.0, 0.1]))] == [3]
    (message,) = caplog.messages
    assert message.startswith(f"{NAME} is made anew, since its copy here is no good: ")
