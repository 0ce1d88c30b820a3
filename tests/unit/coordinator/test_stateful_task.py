"""Samza's TestStatefulTask (S2-126): run, lose the disk, restart; the state is there, at the right partition."""

from __future__ import annotations

from typing import Any

import grete
from grete.config.settings import Settings
from grete.model.ids import JobId
from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job

CONFIG = {
    "job.name": "hello-stateful-world",
    "task.inputs": "local.input",
    "systems.local.samza.msg.serde": "string",
    "stores.mystore.factory": "org.apache.samza.storage.kv.RocksDbKeyValueStorageEngineFactory",
    "stores.mystore.changelog": "local.mystoreChangelog",
    "stores.mystore.key.serde": "string",
    "stores.mystore.msg.serde": "string",
}
restored: dict[str, set[str]] = {}


class StateStoreTestTask(grete.StreamTask):
    """Keeps each message; `-X` deletes X. Notes what was there when it began."""

    def init(self, context: grete.TaskContext) -> None:
        self.store = context.store("mystore")
        restored[context.task_name] = {key for key, _ in self.store.all()}

    def process(self, envelope: grete.IncomingMessageEnvelope, collector: Any, coordinator: Any) -> None:
        message = envelope.message
        if message.startswith("-"):
            self.store.delete(message[1:])
        else:
            self.store.put(message, message)
        coordinator.commit()


def send(job: JobUnderTest, *messages: str, partition: int) -> None:
    for message in messages:
        job.send("local.input", message, partition=partition)
        job.run()


def changelog(job: JobUnderTest, partition: int) -> list[tuple[str, str | None]]:
    stream = Settings.of(CONFIG).store("mystore").changelog_stream(JobId(CONFIG["job.name"]))
    changes = list(job._system.changes(stream, partition, 0, 10_000))
    return [(key.decode(), None if value is None else value.decode()) for key, value in changes]


def test_the_state_of_each_task_comes_back_from_its_own_changelog_partition(start_job: StartJob) -> None:
    restored.clear()
    job = start_job(StateStoreTestTask, CONFIG, partitions={"local.input": 2})
    send(job, "1", "2", "3", "2", "99", "99", "-99", partition=0)
    send(job, "a", "b", partition=1)
    assert restored == {"Partition 0": set(), "Partition 1": set()}
    assert [key for key, _ in changelog(job, 0)] == ["1", "2", "3", "2", "99", "99", "99"]
    assert changelog(job, 0)[-1] == ("99", None)
    assert changelog(job, 1) == [("a", "a"), ("b", "b")]

    job.restart(lose_stores=True)
    send(job, "4", "5", "5", partition=0)
    send(job, "c", partition=1)
    assert restored == {"Partition 0": {"1", "2", "3"}, "Partition 1": {"a", "b"}}
    assert changelog(job, 0)[-3:] == [("4", "4"), ("5", "5"), ("5", "5")]

    job.restart(lose_stores=True)
    send(job, "6", partition=0)
    assert restored["Partition 0"] == {"1", "2", "3", "4", "5"}
    assert job.store("mystore", "Partition 1") == {"a": "a", "b": "b", "c": "c"}
