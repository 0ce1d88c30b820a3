"""A job that counts without Spark, on the embedded system or on Kafka, for tests of what befalls it meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.fault.job_on_kafka import Job, job_on

from grete.model.ids import JobId
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.testing.chaos.own_job import OwnJob
from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import reaches

PARTITIONS, AT_ONCE = 8, 50


class Moved(Protocol):
    """A job that runs without Spark, and gets records."""

    id: JobId
    quiet: threading.Lock
    """Nothing is sent while somebody holds it."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def load(self) -> AbstractContextManager[None]: ...
    def count(self) -> int: ...
    def sent(self) -> int: ...
    def check(self) -> None: ...
    def report(self) -> str: ...


@contextmanager
def load(job: Job, quiet: AbstractContextManager[Any] | None = None) -> Iterator[None]:
    """Records come all the time, about 1,000 a second; but while somebody holds `quiet`."""
    ended = threading.Event()
    turn = quiet or nullcontext()

    def send() -> None:
        while not ended.wait(AT_ONCE / 1_000):
            with turn:
                job.send(AT_ONCE)

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        ended.set()
        sending.join()


class OnKafka:
    """Everything is in topics."""

    def __init__(self, job: Job) -> None:
        self.job, self.id = job, job.id
        self._is_submitted = False
        self.quiet = threading.Lock()

    def start(self) -> None:
        self.job.run_again() if self._is_submitted else self.job.submit()
        self._is_submitted = True

    def stop(self) -> None:
        self.job.stop()

    def load(self) -> AbstractContextManager[None]:
        return load(self.job, self.quiet)

    def count(self) -> int:
        return self.job.count()

    def sent(self) -> int:
        return self.job._sent

    def check(self) -> None:
        self.job.assert_each_counted_once()
        self.job.assert_order_of_keys()

    def report(self) -> str:
        return self.job.log_ends()


class Embedded:
    """Everything is in files of one home."""

    def __init__(self, own: OwnJob) -> None:
        self._own, self.id = own, own.job
        self.quiet = threading.Lock()

    def start(self) -> None:
        self._own.send(1)
        self._own.start()

    def stop(self) -> None:
        assert self._own.stop() == 0

    def load(self) -> AbstractContextManager[None]:
        return self._own.fed(1_000)

    def count(self) -> int:
        return self._own._counted()

    def sent(self) -> int:
        return self._own.sent

    def check(self) -> None:
        assert list(self._own.problems()) == []

    def report(self) -> str:
        return (self._own.home / "coordinator.log").read_text()[-6_000:]


@contextmanager
def moved(
    system: str,
    settings: dict[str, str],
    folder: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Moved]:
    if system == "kafka":
        kafka: KafkaCluster = request.getfixturevalue("kafka")
        with job_on(
            kafka,
            folder,
            monkeypatch,
            partitions=PARTITIONS,
            settings={"task.commit.groups": "2", **settings},
        ) as job:
            yield OnKafka(job)
        return
    monkeypatch.setenv("GRETE_HOME", str(folder))
    own = OwnJob(folder, spark=False, settings=settings, partitions=PARTITIONS)
    with closing(own):
        yield Embedded(own)


def containers(job: Moved) -> int:
    """How many run that have tasks of their own."""
    with open_job(job.id) as handle:
        launched = {id_ for id_, one in handle.launches().items() if one.handle}
        active = {handle.assignments()[task] for task in handle.active_tasks()}
    return len(launched & active)


def change(job: Moved, key: str, value: str) -> None:
    with open_job(job.id) as handle:
        set_config(handle, {key: value}, reason="test")


def await_all(job: Moved) -> None:
    reaches(job.count, job.sent(), "records counted", context=job.report)
