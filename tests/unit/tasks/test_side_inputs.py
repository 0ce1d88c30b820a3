"""Stores that streams fill and tasks read: in the worker and in a process beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grete.config.settings import Settings
from grete.errors import ConfigError, ProcessingError
from grete.tasks.application import check_application
from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import started

BASE = {
    "job.name": "enrich",
    "job.application.path": str(Path(__file__).parent),
    "task.class": "enriching:Enrich",
    "task.inputs": "local.orders",
    "task.outputs": "local.out",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.key.serde": "string",
    "stores.profiles.factory": "grete.store.sqlite",
    "stores.profiles.key.serde": "string",
    "stores.profiles.msg.serde": "json",
    "stores.profiles.side.inputs": "local.profiles",
}
NAMES = {
    "stores.profiles.side.inputs.processor.factory": "enriching:Names",
    "stores.profiles.side.inputs": "local.profiles,local.banned",
    "least.letters": "2",
}
ASIDE = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
Start = Callable[..., JobUnderTest]


@pytest.fixture(params=["in the worker", "in a process beside it"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    beside = {"job.split.deployment.enabled": "true"} if request.param != "in the worker" else {}
    jobs = started(JobUnderTest, "job", tmp_path)
    start_job = next(jobs)
    yield lambda more=None, **how: start_job(None, {**BASE, **beside, **(more or {})}, **how)
    next(jobs, None)


def tell(job: JobUnderTest, stream: str, **messages: Any) -> None:
    for key, message in messages.items():
        job.send(f"local.{stream}", message, key=key)


@pytest.mark.parametrize("task", ["Enrich", "Awaited"])
def test_a_store_has_what_its_stream_says_before_the_first_message_comes(start: Start, task: str) -> None:
    job = start({"task.class": f"enriching:{task}"})
    tell(job, "orders", ann=1, bob=2)
    tell(job, "profiles", ann="Anna", bob="Robert")
    tell(job, "profiles", bob=None)
    job.run()
    assert job.messages("local.out") == [["ann", "Anna"], ["bob", None]]
    tell(job, "profiles", bob="Bob")
    job.run()
    tell(job, "orders", bob=3)
    job.run()
    assert job.messages("local.out")[2:] == [["bob", "Bob"]]


def test_what_was_said_before_the_job_began_counts_whatever_the_offset_default_is(start: Start) -> None:
    job = start(
        {"systems.local.samza.offset.default": "upcoming", "streams.profiles.samza.reset.offset": "true"}
    )
    job.stop()
    tell(job, "profiles", ann="Anna")
    job.start()
    job.run()
    tell(job, "orders", ann=1)
    job.run()
    assert job.messages("local.out") == [["ann", "Anna"]]


def test_a_processor_makes_entries_of_several_streams_and_sees_the_store(start: Start) -> None:
    job = start(NAMES)
    tell(job, "profiles", ann="Anna", bob="Robert")
    tell(job, "profiles", ann="Annabel")
    job.run()
    tell(job, "banned", bob="spam")
    job.run()
    tell(job, "orders", ann=1, bob=2)
    job.run()
    assert job.messages("local.out") == [["ann", ["Annabel", 2]], ["bob", None]]


def test_each_message_counts_once_through_kills_and_lost_disks(start: Start) -> None:
    job = start(NAMES)
    tell(job, "profiles", ann="Anna")
    job.run_batch(commit=False)
    job.restart()
    tell(job, "profiles", ann="Annabel")
    job.run()
    job.restart(lose_stores=True)
    tell(job, "profiles", ann="Ann")
    job.run()
    tell(job, "orders", ann=1)
    job.run()
    assert job.messages("local.out") == [["ann", ["Ann", 3]]]
    assert job.store("profiles", "Partition 0") == {"ann": ["Ann", 3]}
    read = {"local.profiles.0": 2, "local.banned.0": -1, "local.orders.0": 0}
    assert job.checkpoints()["Partition 0"] == read


def test_a_standbys_copy_has_it(start: Start) -> None:
    job = start({"job.standbytasks.replication.factor": "2"})
    tell(job, "profiles", ann="Anna")
    job.run()
    job.follow()
    [copy] = (job.directory / "jobs").rglob("standby-0/**/*.db")
    assert copy.stat().st_size > 0
    job.restart(lose_stores=True)
    tell(job, "orders", ann=1)
    job.run()
    assert job.messages("local.out") == [["ann", "Anna"]]


def test_a_task_only_reads_the_store(start: Start) -> None:
    job = start()
    tell(job, "orders", ann="forget")
    with pytest.raises(
        ProcessingError, match=r"only reads the store 'profiles', which local\.profiles fills"
    ):
        job.run()


def test_a_processor_that_fails_names_its_message_or_sets_it_aside(start: Start) -> None:
    job = start(NAMES)
    tell(job, "profiles", ann="A")
    with pytest.raises(
        ProcessingError, match=r"could not process local\.profiles\.0 offset 0: .*A is too short"
    ):
        job.run()
    job = start({**NAMES, **ASIDE})
    tell(job, "profiles", ann="A", bob="Bob")
    assert job.run().dead_letters == 1
    tell(job, "orders", ann=1, bob=2)
    job.run()
    assert job.messages("local.out") == [["ann", None], ["bob", ["Bob", 1]]]


def test_each_task_has_all_of_a_broadcast_side_input(start: Start) -> None:
    both = {"local.orders": 2, "local.profiles": 2}
    job = start({"task.broadcast.inputs": "local.profiles#[0-1]"}, partitions=both)
    job.send("local.profiles", "Anna", key="ann", partition=0)
    job.send("local.profiles", "Robert", key="bob", partition=1)
    for partition in (0, 1):
        for key in ("ann", "bob"):
            job.send("local.orders", 1, key=key, partition=partition)
    job.run()
    assert sorted(job.messages("local.out")) == [["ann", "Anna"]] * 2 + [["bob", "Robert"]] * 2


def test_a_rewind_of_the_stream_fills_the_store_anew(start: Start) -> None:
    job = start()
    tell(job, "profiles", ann="Anna")
    job.run()
    job.restart(config={"stores.profiles.side.inputs.processor.factory": "enriching:Loud"})
    job.replay("local.profiles")
    job.run()
    tell(job, "orders", ann=1)
    job.run()
    assert job.messages("local.out") == [["ann", "ANNA"]]


def test_a_side_input_may_be_named_by_its_streams_id(start: Start) -> None:
    by_id = {
        "stores.profiles.side.inputs": "people",
        "streams.people.samza.system": "local",
        "streams.people.samza.physical.name": "profiles",
    }
    job = start(by_id)
    tell(job, "profiles", ann="Anna")
    tell(job, "orders", ann=1)
    job.run()
    assert job.messages("local.out") == [["ann", "Anna"]]


def test_a_side_input_may_be_of_another_system(start: Start) -> None:
    other = {
        "stores.profiles.side.inputs": "other.profiles",
        "task.checkpoint.system": "local",
        "job.coordinator.system": "local",
        **{f"systems.{name}.samza.factory": "local" for name in ("local", "other")},
        "systems.other.samza.key.serde": "string",
        "systems.other.samza.msg.serde": "json",
    }
    job = start(other)
    job.send("other.profiles", "Anna", key="ann")
    tell(job, "orders", ann=1)
    job.run()
    assert job.messages("local.out") == [["ann", "Anna"]]
    assert job.checkpoints()["Partition 0"] == {"other.profiles.0": 0, "local.orders.0": 0}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"stores.profiles.side.inputs": "profiles"},
            r"side\.inputs: 'profiles' is not of the form system\.stream",
        ),
        ({"stores.profiles.side.inputs": "kafak.profiles"}, r"side\.inputs names the system 'kafak'"),
        (
            {"job.systemstreampartition.grouper.factory": "GroupBySystemStreamPartitionFactory"},
            r"a partition of local\.profiles is a task of its own.*task\.broadcast\.inputs",
        ),
        ({"task.class": "", "app.class": "enriching:Enrich"}, "a DataFrame pipeline has no stores"),
        ({"task.inputs": ""}, "Missing required config: task.inputs"),
    ],
)
def test_what_would_leave_the_store_empty_is_refused(more: dict[str, str], said: str) -> None:
    config = {key: value for key, value in {**BASE, **more}.items() if value}
    with pytest.raises(ConfigError, match=said):
        JobUnderTest(None, config)


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (
            "enriching:NoProcessor",
            r"processor\.factory: 'enriching:NoProcessor' is not a grete\.SideInputsProcessor",
        ),
        ("enriching:Nmaes", r"processor\.factory: module 'enriching' has no 'Nmaes'"),
    ],
)
@pytest.mark.parametrize("is_isolated", ["false", "true"])
def test_a_processor_that_is_none_is_refused_before_anything_is_started(
    processor: str, said: str, is_isolated: str
) -> None:
    more = {
        "stores.profiles.side.inputs.processor.factory": processor,
        "job.split.deployment.enabled": is_isolated,
    }
    with pytest.raises(ConfigError, match=said):
        check_application(Settings.of({**BASE, **more}))
