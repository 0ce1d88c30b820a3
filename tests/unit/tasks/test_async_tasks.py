"""AsyncStreamTask: several messages in progress at once, and one transaction of what has ended."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

import grete
from grete.errors import ConfigError, ProcessingError
from grete.testing.job import JobUnderTest

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "task.max.concurrency": "3",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
    "stores.counts.key.serde": "string",
    "stores.counts.msg.serde": "json",
}


class Service:
    """Another program that answers when it has so many requests, or at once; notes how many waited at a time."""

    def __init__(self, together: int = 1) -> None:
        self.together = together
        self.waiting: list[asyncio.Future[None]] = []
        self.most = 0

    async def ask(self) -> None:
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        self.most = max(self.most, len(self.waiting))
        if len(self.waiting) >= self.together:
            waiting, self.waiting = self.waiting, []
            for one in reversed(waiting):
                one.set_result(None)
        await answer


class Asking(grete.AsyncStreamTask):
    """Counts and sends each message once the service has answered; every method is asynchronous."""

    service = Service()
    calls: ClassVar[list[str]] = []

    async def init(self, context: grete.TaskContext) -> None:
        await asyncio.sleep(0)
        self.calls.append("init")
        self.counts = context.store("counts")

    async def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        await self.service.ask()
        if envelope.message == "bad":
            raise ValueError("bad")
        if envelope.message == "for ever":
            await asyncio.Event().wait()
        self.counts.put("count", (self.counts.get("count") or 0) + 1)
        collector.send("local.out", envelope.message)
        if envelope.message == "commit":
            coordinator.commit()

    async def window(self, collector: grete.MessageCollector, coordinator: grete.TaskCoordinator) -> None:
        await asyncio.sleep(0)
        self.calls.append("window")

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.calls.append("close")


@pytest.fixture(autouse=True)
def service() -> Service:
    Asking.service, Asking.calls = Service(), []
    return Asking.service


def test_messages_are_in_progress_together_and_all_of_them_are_committed(service: Service) -> None:
    service.together = 3
    with JobUnderTest(Asking, CONFIG) as job:
        for number in range(6):
            job.send("local.in", number)
        job.run()
        assert service.most == 3
        assert sorted(job.messages("local.out")) == list(range(6))
        assert job.messages("local.out") != list(range(6)), "the last of three was answered first"
        assert job.store("counts", "Partition 0") == {"count": 6}
        assert job.checkpoints()["Partition 0"] == {"local.in.0": 5}


def test_one_at_a_time_is_in_order(service: Service) -> None:
    with JobUnderTest(Asking, CONFIG | {"task.max.concurrency": "1"}) as job:
        for number in range(6):
            job.send("local.in", number)
        job.run()
        assert service.most == 1
        assert job.messages("local.out") == list(range(6))


def test_tasks_wait_together(service: Service) -> None:
    service.together = 4
    one_each = {"task.max.concurrency": "1"}
    with JobUnderTest(Asking, CONFIG | one_each, partitions={"local.in": 4}) as job:
        for partition in range(4):
            job.send("local.in", partition, partition=partition)
        job.run()
        assert service.most == 4
        assert sorted(job.messages("local.out")) == list(range(4))


def test_what_is_sent_has_the_time_of_its_own_message(service: Service) -> None:
    service.together = 3
    with JobUnderTest(Asking, CONFIG) as job:
        for number in range(3):
            job.send("local.in", number, timestamp_ms=1_000 + number)
        job.run()
        assert {one.message: one.timestamp_ms for one in job.outputs("local.out")} == {
            0: 1_000,
            1: 1_001,
            2: 1_002,
        }


def test_a_message_that_fails_commits_none_and_is_named(service: Service) -> None:
    with JobUnderTest(Asking, CONFIG) as job:
        for message in ("a", "bad", "b"):
            job.send("local.in", message)
        with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 1: ValueError"):
            job.run()
        assert (job.messages("local.out"), job.checkpoints()) == ([], {})


def test_a_message_has_so_much_time_and_then_fails() -> None:
    with JobUnderTest(Asking, CONFIG | {"task.callback.timeout.ms": "20"}) as job:
        for message in ("a", "for ever"):
            job.send("local.in", message)
        with pytest.raises(ProcessingError, match=r"offset 1: TimeoutError.*longer than 0\.02 s"):
            job.run()


def test_no_message_begins_after_one_that_wants_a_commit(service: Service) -> None:
    with JobUnderTest(Asking, CONFIG | {"task.max.concurrency": "1"}, partitions={"local.in": 2}) as job:
        for message in ("a", "commit", "b", "c"):
            job.send("local.in", message, partition=0)
        job.send("local.in", "other", partition=1)
        job.run_batch()
        assert job.checkpoints()["Partition 0"] == {"local.in.0": 1}
        job.restart()
        job.run()
        assert sorted(job.messages("local.out")) == ["a", "b", "c", "commit", "other"]
        assert job.checkpoints()["Partition 0"] == {"local.in.0": 3}


def test_dead_letters_are_set_aside_one_after_the_other(service: Service) -> None:
    poison = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
    with JobUnderTest(Asking, CONFIG | poison) as job:
        for message in ("a", "bad", "b"):
            job.send("local.in", message)
        job.run()
        assert service.most == 1
        assert job.messages("local.out") == ["a", "b"]
        assert [letter["offset"] for letter in job.dead_letters()] == ["1"]


def test_every_method_may_be_asynchronous() -> None:
    with JobUnderTest(Asking, CONFIG | {"task.window.ms": "10"}) as job:
        job.send("local.in", 1)
        job.run()
        job.advance(1)
        job.run()
        job.stop()
        assert Asking.calls == ["init", "window", "close"]


def test_a_message_that_cannot_be_read_is_named(service: Service) -> None:
    with JobUnderTest(Asking, CONFIG) as job:
        job.send("local.in", "a")
        job.send_bytes("local.in", b"{")
        with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 1"):
            job.run()


def test_messages_of_another_start_are_not_begun_again(service: Service) -> None:
    def counted(job: JobUnderTest) -> Any:
        return job.store("counts", "Partition 0")["count"]

    with JobUnderTest(Asking, CONFIG) as job:
        for number in range(5):
            job.send("local.in", number)
        job.run()
        job.restart(lose_stores=True)
        for number in range(5):
            job.send("local.in", number)
        job.run()
        assert counted(job) == 10


def test_a_function_of_a_test_may_be_asynchronous() -> None:
    async def send(envelope: Any, collector: grete.MessageCollector, coordinator: Any) -> None:
        await asyncio.sleep(0)
        collector.send("local.out", envelope.message)

    with JobUnderTest(send, CONFIG) as job:
        job.send("local.in", "a")
        job.run()
        assert job.messages("local.out") == ["a"]


def test_an_asynchronous_process_of_a_plain_task_is_refused_before_it_loses_messages() -> None:
    class Forgetful(grete.StreamTask):
        async def process(self, *_: Any) -> None:
            raise AssertionError("nothing awaits it")

    with (
        pytest.raises(ConfigError, match=r"async def: derive the class from grete\.AsyncStreamTask"),
        JobUnderTest(Forgetful, CONFIG),
    ):
        pass
