"""`job.elasticity.factor`: several tasks share a partition, and each record is processed once, by its key's task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.arrow import pa
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.errors import ConfigError, ProcessingError
from grete.model.ids import SystemStreamPartition
from grete.systems.records import records
from grete.tasks.key_buckets import KeyBuckets
from grete.tasks.runner import taken_of
from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import started
from grete.wire.java_hash import string_hash

BASE = {
    "job.name": "elastic",
    "job.application.path": str(Path(__file__).parent),
    "task.class": "elastic:Note",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "job.elasticity.factor": "3",
    "systems.local.samza.msg.serde": "json",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.offset.default": "oldest",
    "stores.counts.factory": "grete.store.sqlite",
    "stores.counts.key.serde": "string",
    "stores.counts.msg.serde": "json",
}
ASIDE = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
KEYS = [f"key-{number}" for number in range(40)]
Start = Callable[..., JobUnderTest]


@pytest.fixture(params=["in the worker", "asynchronous", "in a process beside it"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    more = {
        "in the worker": {},
        "asynchronous": {"task.class": "elastic:Awaited", "task.max.concurrency": "4"},
        "in a process beside it": {"job.split.deployment.enabled": "true"},
    }[request.param]
    jobs = started(JobUnderTest, "job", tmp_path)
    start_job = next(jobs)
    yield lambda config=None, **how: start_job(None, {**BASE, **more, **(config or {})}, **how)
    next(jobs, None)


def owner(key: str, partition: int, factor: int = 3) -> str:
    return f"Partition {partition} {abs(string_hash(key)) % factor}"


def send(job: JobUnderTest, *keys: str, message: str = "m", partition: int = 0) -> None:
    for key in keys:
        job.send("local.in", message, key=key, partition=partition)


def seen(job: JobUnderTest) -> list[list[Any]]:
    return sorted(job.messages("local.out"), key=lambda row: (row[3], row[2]))


def test_each_record_is_processed_once_by_the_task_of_its_key(start: Start) -> None:
    job = start(partitions={"local.in": 2})
    send(job, *KEYS)
    send(job, *KEYS[:7], partition=1)
    job.run()
    rows = seen(job)
    assert [row[2] for row in rows] == [*range(40), *range(7)]
    assert all(row[0] == owner(row[1], row[3]) for row in rows)
    assert len({row[0] for row in rows}) == 6
    assert set(job.checkpoints()) == {f"Partition {p} {b}" for p in (0, 1) for b in range(3)}
    assert {one["local.in.0"] for one in job.checkpoints().values() if "local.in.0" in one} == {39}


def test_kills_and_lost_stores_change_nothing(start: Start) -> None:
    job = start()
    send(job, *KEYS)
    job.run_batch(commit=False)
    job.restart()
    job.run()
    send(job, *KEYS)
    job.restart(lose_stores=True)
    job.run()
    rows = seen(job)
    assert [row[2] for row in rows] == list(range(80))
    assert Counter(row[4] for row in rows) == {1: 40, 2: 40}


def test_a_commit_in_the_middle_leaves_each_task_where_it_is(start: Start) -> None:
    job = start()
    send(job, *KEYS[:10])
    send(job, KEYS[0], message="commit")
    send(job, *KEYS[10:])
    job.run_batch()
    assert len({str(one) for one in job.checkpoints().values()}) > 1, "one stands behind the others"
    job.restart()
    job.run()
    assert [row[2] for row in seen(job)] == list(range(41))


def test_a_record_without_key_goes_by_its_offset(start: Start) -> None:
    job = start()
    for _ in range(30):
        job.send("local.in", "m")
    job.run()
    assert [row[0] for row in seen(job)] == [owner(str(offset), 0) for offset in range(30)]


def test_what_is_broadcast_comes_to_every_task(start: Start) -> None:
    job = start({"task.inputs": "local.in,local.all", "task.broadcast.inputs": "local.all#0"})
    job.send("local.all", "m", key="everybody")
    job.run()
    assert sorted(row[0] for row in seen(job)) == [f"Partition 0 {bucket}" for bucket in range(3)]


def test_a_task_that_ends_takes_no_records_of_the_others_with_it(start: Start) -> None:
    job = start()
    send(job, KEYS[0], message="shutdown")
    job.run()
    send(job, *KEYS)
    job.run()
    rows = [row for row in seen(job) if row[2] > 0]
    assert [row[1] for row in rows] == [key for key in KEYS if owner(key, 0) != owner(KEYS[0], 0)]


def test_several_containers_share_a_partition(start: Start) -> None:
    job = start({"job.container.count": "3"})
    send(job, *KEYS)
    job.run()
    assert [row[2] for row in seen(job)] == list(range(40))
    assert {owner(key, 0) for key in KEYS} == {row[0] for row in seen(job)}


def test_one_record_is_set_aside_and_no_other(tmp_path: Path) -> None:
    with JobUnderTest(None, {**BASE, **ASIDE}, directory=tmp_path) as job:
        send(job, *KEYS[:5])
        send(job, KEYS[5], message="bad")
        send(job, *KEYS[6:])
        job.run()
        assert [row[2] for row in seen(job)] == [offset for offset in range(40) if offset != 5]
        assert [letter["offset"] for letter in job.dead_letters()] == ["5"]


def test_a_failure_names_the_record_and_the_task(start: Start) -> None:
    job = start()
    send(job, *KEYS[:5])
    send(job, KEYS[5], message="bad")
    with pytest.raises(
        ProcessingError, match=rf"task '{owner(KEYS[5], 0)}' could not .*local\.in\.0 offset 5"
    ):
        job.run()


def test_a_rewind_reaches_every_task_of_the_partition(start: Start) -> None:
    job = start()
    send(job, *KEYS)
    job.run()
    job.replay("local.in", offset=20)
    job.run()
    assert Counter(row[2] for row in seen(job)) == {offset: 1 + (offset >= 20) for offset in range(40)}


def test_a_grown_stream_keeps_its_keys_where_their_counts_are(start: Start) -> None:
    job = start(partitions={"local.in": 1})
    send(job, *KEYS)
    job.run()
    job.stop()
    job.add_partitions("local.in", 2)
    job.start()
    for key in KEYS:
        job.send("local.in", "m", key=key)
    job.run()
    rows = seen(job)
    assert all(row[0] == owner(row[1], 0) for row in rows)
    assert Counter(row[4] for row in rows) == {1: 40, 2: 40}


# --- another factor ---


def test_another_factor_without_the_place_is_refused_and_back_it_goes_on(tmp_path: Path) -> None:
    stateless = {key: value for key, value in BASE.items() if not key.startswith("stores.")}
    config = {**stateless, "task.class": "elastic:Plain"}
    with JobUnderTest(None, config, directory=tmp_path, partitions={"local.in": 1}) as job:
        send(job, *KEYS)
        job.run()
        with pytest.raises(
            ConfigError, match=r"(?s)local\.in\.0 was read up to 39 by 'Partition 0 0'.*elasticity"
        ):
            job.restart(config={"job.elasticity.factor": "1"})
        job.restart(config={"job.elasticity.factor": "3"})
        send(job, *KEYS)
        job.run()
        assert [row[2] for row in seen(job)] == list(range(80))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"job.elasticity.factor": "0"}, "a partition has 1 to 1000 tasks"),
        ({"job.elasticity.factor": "1001"}, "a partition has 1 to 1000 tasks"),
        ({"job.elasticity.factor": "x"}, "is not a whole number"),
        (
            {"job.systemstreampartition.grouper.factory": "AllSspToSingleTaskGrouperFactory"},
            "makes no buckets of keys",
        ),
        ({"app.class": "a:B", "task.class": ""}, "Spark divides the work"),
    ],
)
def test_a_factor_that_cannot_work_is_refused(more: dict[str, str], says: str) -> None:
    errors = check({key: value for key, value in {**BASE, **more}.items() if value}).errors
    assert any(says in error for error in errors), errors


# --- buckets ---


@given(
    st.lists(st.one_of(st.none(), st.text(max_size=6))),
    st.integers(2, 7),
    st.data(),
)
def test_buckets_are_samzas_and_a_cut_is_behind_the_last_row_that_was_taken(
    keys: list[str | None], factor: int, data: st.DataObject
) -> None:
    ssp = SystemStreamPartition("local", "in", 0)
    settings = Settings.of({**BASE, "job.elasticity.factor": str(factor)})
    encoded = [None if key is None else key.encode("utf-8", "surrogatepass") for key in keys]
    plain = records(encoded, [b""] * len(keys), [0] * len(keys))
    offsets = pa.array([10 + 3 * row for row in range(len(keys))], pa.int64())
    rows = pa.RecordBatch.from_arrays([*plain.columns[:3], offsets], names=["key", "value", "time", "offset"])
    by_row = list(zip(keys, offsets.to_pylist(), strict=True))
    split = KeyBuckets(settings, factor).split(ssp, rows, list(range(factor)))
    for bucket, own in enumerate(split):
        placed = (
            (abs(string_hash(str(at) if key is None else key)) & 0x7FFFFFFF) % factor for key, at in by_row
        )
        assert own.column(3).to_pylist() == [
            at for (_, at), b in zip(by_row, placed, strict=True) if b == bucket
        ]
        count = data.draw(st.integers(0, own.num_rows))
        behind = len(keys) if count == own.num_rows else (own.column(3)[count].as_py() - 10) // 3
        assert taken_of(rows, own, count) == behind
