"""The testing kit: a job in the test's own process, through the real code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grete
from grete.errors import ConfigError, IllegalStateError, ProcessingError
from grete.testing.clock import ManualClock
from grete.testing.controlled_log import ControlledLog
from grete.testing.job import JobUnderTest
from grete.testing.pytest_fixtures import StartJob
from grete.testing.pytest_fixtures import start_job as start_job

CONFIG = {
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.key.serde": "string",
    "systems.local.samza.msg.serde": "json",
    "stores.counts.factory": "grete.store.sqlite",
}


class Counter(grete.StreamTask):
    """Counts keys; "bad" fails after it has counted; windows say how many keys there are."""

    closed = 0

    def init(self, context: grete.TaskContext) -> None:
        self.counts = context.store("counts")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send("local.out", count, key=envelope.key)
        if envelope.message == "bad":
            raise RuntimeError("poison")
        if envelope.message == "end":
            coordinator.shutdown(all_tasks=True)
        if envelope.message == "end of task":
            coordinator.shutdown()

    def window(self, collector: grete.MessageCollector, coordinator: grete.TaskCoordinator) -> None:
        collector.send("local.out", {"keys": len(list(self.counts.all()))})

    def close(self) -> None:
        Counter.closed += 1


@pytest.fixture
def job() -> Iterator[JobUnderTest]:
    with JobUnderTest(Counter, CONFIG) as started:
        yield started


def send(job: JobUnderTest, *keys: str, message: Any = None, partition: int = 0) -> None:
    for key in keys:
        job.send("local.in", message, key=key, partition=partition)


def test_outputs_state_and_checkpoints_can_be_looked_at(job: JobUnderTest) -> None:
    send(job, "a", "b", "a")
    assert job.run() == (1, 3, 0)
    assert [(m.key, m.message) for m in job.outputs("local.out")] == [("a", 1), ("b", 1), ("a", 2)]
    assert job.store("counts", "Partition 0") == {"a": 2, "b": 1}
    assert job.checkpoints() == {"Partition 0": {"local.in.0": 2}}


def test_checkpoints_are_in_the_store_that_the_configuration_names(tmp_path: Path) -> None:
    files = {
        "task.checkpoint.factory": "grete.checkpoint.file-system",
        "task.checkpoint.path": "/srv/checkpoints",
    }
    with JobUnderTest(Counter, {**CONFIG, **files}, directory=tmp_path) as job:
        send(job, "a", "b")
        job.run()
        (written,) = (tmp_path / "checkpoints").glob("*-checkpoints")
        assert b'"offset":"1"' in written.read_bytes().replace(b" ", b"")
        send(job, "c")
        written.write_bytes(written.read_bytes().replace(b'"1"', b'"0"'))  # as an operator would
        job.restart()
        assert job.checkpoints() == {"Partition 0": {"local.in.0": 0}}
        assert job.run() == (1, 2, 0)


def test_checkpoints_in_the_coordinator_stream_outlive_the_job(tmp_path: Path) -> None:
    stream = {"task.checkpoint.factory": "grete.checkpoint.coordinator-stream"}
    with JobUnderTest(Counter, {**CONFIG, **stream}, directory=tmp_path) as job:
        send(job, "a", "b")
        job.run()
        job.restart()
        assert (job.run(), job.checkpoints()) == ((0, 0, 0), {"Partition 0": {"local.in.0": 1}})
        assert set(job.coordinator_stream().raw("set-checkpoint")) == {"Partition 0"}


def test_a_restarted_job_goes_on_from_its_checkpoint_and_its_state(job: JobUnderTest) -> None:
    send(job, "a")
    job.run()
    send(job, "a")
    job.restart().run()
    send(job, "a")
    job.restart(lose_stores=True).run()
    assert job.messages("local.out") == [1, 2, 3]


def test_a_batch_that_was_not_committed_never_was(start_job: StartJob) -> None:
    job = start_job(Counter, {**CONFIG, "systems.local.samza.offset.default": "oldest"})
    send(job, "a")
    job.run_batch(commit=False)
    assert (job.messages("local.out"), job.checkpoints(), job.store("counts", "Partition 0")) == ([], {}, {})
    job.run_batch(commit=False)
    job.restart().run()
    assert job.messages("local.out") == [1]


def test_a_batch_that_was_not_committed_is_run_again_without_a_restart(start_job: StartJob) -> None:
    job = start_job(Counter, {**CONFIG, "systems.local.samza.offset.default": "oldest"})
    for key in ("a", "b"):
        send(job, key)
        job.run_batch(commit=False)
        job.run()
    assert job.messages("local.out") == [1, 1]


def test_a_blocked_stream_is_held_back_until_it_is_unblocked(job: JobUnderTest) -> None:
    send(job, "a")
    job.block("local.in")
    send(job, "b")
    assert job.run().records == 1
    job.unblock("local.in")
    assert job.run().records == 1
    assert job.checkpoints() == {"Partition 0": {"local.in.0": 1}}


def test_one_partition_can_be_blocked_while_the_others_go_on(start_job: StartJob) -> None:
    job = start_job(Counter, CONFIG, partitions={"local.in": 2})
    job.block("local.in", 1)
    send(job, "a", partition=0)
    send(job, "a", partition=1)
    job.run()
    assert job.checkpoints() == {"Partition 0": {"local.in.0": 0}}
    job.unblock("local.in", 1)
    job.run()
    assert job.checkpoints()["Partition 1"] == {"local.in.1": 0}


def test_a_stream_can_be_replayed_from_its_start_and_from_an_offset(job: JobUnderTest) -> None:
    send(job, "a", "a", "a")
    job.run()
    job.replay("local.in")
    assert job.run().records == 3
    job.replay("local.in", offset=2)
    assert job.run().records == 1
    assert job.messages("local.out") == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(IllegalStateError, match=r"no task reads local\.other"):
        job.replay("local.other")


def test_windows_come_when_the_test_lets_time_pass(start_job: StartJob) -> None:
    job = start_job(Counter, {**CONFIG, "task.window.ms": "60000"})
    send(job, "a", "b")
    job.run()
    job.advance(30)
    job.advance(30)
    job.run()
    assert job.messages("local.out")[2:] == [{"keys": 2}]
    assert job.run().batches == 0


def test_a_poison_message_fails_the_batch_and_leaves_what_was_before(job: JobUnderTest) -> None:
    send(job, "a")
    job.run()
    send(job, "a", message="bad")
    with pytest.raises(ProcessingError, match=r"local\.in\.0 offset 1.*poison"):
        job.run()
    assert (job.messages("local.out"), job.checkpoints()) == ([1], {"Partition 0": {"local.in.0": 0}})


def test_poison_can_be_put_aside_and_looked_at(start_job: StartJob) -> None:
    dead = {"task.poison.policy": "dead-letter", "task.poison.dead-letter.stream": "local.dead"}
    job = start_job(Counter, {**CONFIG, **dead})
    send(job, "a", "a", message="bad")
    job.send_bytes("local.in", b"{", key=b"a")
    send(job, "a")
    assert job.run() == (1, 4, 3)
    assert job.messages("local.out") == [1]
    assert [(letter["ssp"], letter["offset"]) for letter in job.dead_letters()] == [
        ("local.in.0", "0"),
        ("local.in.0", "1"),
        ("local.in.0", "2"),
    ]


def test_a_task_that_shuts_all_down_ends_the_job_after_its_batch(job: JobUnderTest) -> None:
    send(job, "a", message="end")
    job.run()
    send(job, "a")
    assert (job.has_ended, job.run().batches, job.messages("local.out")) == (True, 0, [1])


def test_a_task_that_shuts_itself_down_leaves_the_others_running(start_job: StartJob) -> None:
    job = start_job(Counter, CONFIG, partitions={"local.in": 2})
    send(job, "a", message="end of task", partition=0)
    job.run()
    send(job, "a", partition=0)
    send(job, "b", partition=1)
    job.run()
    assert (job.shut_down, job.has_ended) == (["Partition 0"], False)
    assert [m.key for m in job.outputs("local.out")] == ["a", "b"]


def test_tasks_are_closed_by_a_stop_and_not_by_a_kill(job: JobUnderTest) -> None:
    send(job, "a")
    job.run()
    before = Counter.closed
    job.kill()
    assert Counter.closed == before
    job.start()
    send(job, "a")
    job.run()
    job.stop()
    assert Counter.closed == before + 1


def test_a_plain_function_can_be_run_as_a_task() -> None:
    def double(
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        collector.send("local.out", envelope.message * 2)

    with JobUnderTest(double, CONFIG) as job:
        job.send("local.in", 21)
        job.run()
        assert job.messages("local.out") == [42]


def test_every_container_of_the_model_runs(start_job: StartJob) -> None:
    job = start_job(
        Counter, {**CONFIG, "job.container.count": "2", "job.launcher": "process"}, partitions={"local.in": 3}
    )
    for partition in range(3):
        send(job, "a", partition=partition)
    assert job.run().records == 3
    assert sorted(job.model.containers) == ["0", "1"]
    assert set(job.checkpoints()) == {"Partition 0", "Partition 1", "Partition 2"}


def test_a_bootstrap_stream_is_read_to_its_end_first(tmp_path: Path) -> None:
    seen: list[str] = []

    def note(envelope: grete.IncomingMessageEnvelope, *_: object) -> None:
        seen.append(envelope.system_stream_partition.stream)

    inputs = {"task.inputs": "local.in,local.table", "streams.table.samza.bootstrap": "true"}
    oldest = {"systems.local.samza.offset.default": "oldest", "task.max.records.per.batch": "2"}
    job = JobUnderTest(note, {**CONFIG, **inputs, **oldest}, directory=tmp_path)
    for _ in range(3):
        job.send("local.in", 1)
        job.send("local.table", 1)
    with job:
        job.run()
    assert seen == ["table"] * 3 + ["in"] * 3


def test_checkpoints_can_be_set_before_the_start(tmp_path: Path) -> None:
    job = JobUnderTest(Counter, CONFIG, directory=tmp_path)
    send(job, "a", "b", "c")
    job.set_checkpoint("Partition 0", {"local.in.0": 1})
    with job:
        job.run()
        assert [m.key for m in job.outputs("local.out")] == ["c"]


def test_the_coordinator_stream_is_written_as_a_coordinator_writes_it(job: JobUnderTest) -> None:
    stream = job.coordinator_stream()
    assert stream.config()["task.inputs"] == "local.in"
    assert stream.values("set-changelog") == {"Partition 0": "0"}
    assert stream.values("set-task-container-assignment") == {"Partition 0": "0"}


def test_a_restart_with_more_partitions_keeps_every_key_with_its_state(start_job: StartJob) -> None:
    job = start_job(Counter, CONFIG, partitions={"local.in": 2})
    send(job, "a", partition=1)
    job.run()
    job.add_partitions("local.in", 4)
    job.restart()
    send(job, "a", partition=3)
    job.run()
    assert job.store("counts", "Partition 1") == {"a": 2}


def test_a_restart_with_a_set_once_key_is_refused_as_a_submit_is(job: JobUnderTest) -> None:
    with pytest.raises(ConfigError, match="grouper"):
        job.restart(
            config={"job.systemstreampartition.grouper.factory": "GroupBySystemStreamPartitionFactory"}
        )


@pytest.mark.parametrize(
    ("application", "config", "problem"),
    [
        (None, {"app.class": "x:Y"}, "needs Spark"),
        (Counter, {"task.inputs": "in"}, "system.stream"),
        (int, {}, "not a grete.StreamTask"),
        (None, {}, "task.class"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(
    application: Any, config: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        JobUnderTest(application, {**CONFIG, **config})


def test_a_job_that_does_not_run_says_so(tmp_path: Path) -> None:
    job = JobUnderTest(Counter, CONFIG, directory=tmp_path)
    with pytest.raises(IllegalStateError, match="start"):
        job.run()
    with job, pytest.raises(IllegalStateError, match="started already"):
        job.start()


def test_temporary_files_are_removed() -> None:
    with JobUnderTest(Counter, CONFIG) as job:
        directory = job.directory
        assert directory.exists()
    assert not directory.exists()


def test_paths_of_the_configuration_are_not_touched(tmp_path: Path) -> None:
    away = tmp_path / "production"
    paths = {
        "systems.local.samza.factory": "local",
        "systems.local.path": str(away),
        "job.state.dir": str(away),
    }
    with JobUnderTest(Counter, {**CONFIG, **paths}) as job:
        send(job, "a")
        job.run()
    assert not away.exists()


def test_a_blocked_log_shows_readers_nothing_new_and_a_replay_shows_any_moment() -> None:
    clock = ManualClock()
    log = ControlledLog(clock)
    with JobUnderTest(Counter, CONFIG, coordinator_log=log, clock=clock) as job:
        stream = job.coordinator_stream()
        moment = log.end()
        log.block()
        job.coordinator_stream().put("set-config", {"task.window.ms": "5"})
        assert "task.window.ms" not in stream.config()
        assert not log.wait(moment, 1.0)
        log.unblock()
        assert stream.config()["task.window.ms"] == "5"
        past = ControlledLog.replay(log.read(), clock, up_to=moment)
        assert [r[1:3] for r in past.read()] == [r[1:3] for r in log.read() if r.offset <= moment]
