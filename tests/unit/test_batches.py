"""The loop of a container's batches, with an engine that a test holds."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import grete
from grete.container.assignment import AssignedTask, Assignment
from grete.container.batches import Batch, BatchLoop
from grete.container.control import Ended
from grete.container.run_lock import is_run_in, running_in
from grete.container.start import prepare
from grete.errors import LogUnreachable
from grete.model.ids import ContainerId, JobId, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem, Message
from grete.tasks.commit.base import BatchOutcome
from grete.tasks.results import TaskResult
from grete.tasks.spec import RunnerSpec
from grete.testing.clock import ManualClock
from grete.testing.job_container import LocalEngine

CONFIG = {
    "task.class": f"{__name__}:Through",
    "task.inputs": "local.in",
    "task.outputs": "local.out",
    "systems.local.samza.offset.default": "oldest",
}
RECORDS = 10


class Through(grete.StreamTask):
    """Sends on what it gets; ends its container on the word `end`."""

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        if envelope.message == b"end":
            coordinator.shutdown(all_tasks=True)
        collector.send("local.out", envelope.message)


class Control(threading.Event):
    """An interruption that is waited for on the test's clock; `on_wait` sees each wait."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._clock = clock
        self.on_wait: Callable[[], None] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self._clock.advance(timeout)
        self.on_wait()
        return self.is_set()


class Engine(LocalEngine):
    """Notes what it is asked for."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.batches: list[Batch] = []
        self.kept_alive = 0
        self.failure: Exception | None = None

    def run(self, spec: RunnerSpec, batch: Batch, place: Path) -> list[TaskResult]:
        self.batches.append(batch)
        if self.failure is not None:
            raise self.failure
        return super().run(spec, batch, place)

    def keep_alive(self) -> None:
        self.kept_alive += 1


class Running:
    """A container of one task over `local.in`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = ManualClock()
        self.system = LocalSystem(home / "local", self.clock)
        self.control = Control(self.clock)
        self.engine = Engine(self.clock)
        self.outcomes: list[tuple[int, BatchOutcome]] = []
        for stream in ("in", "out"):
            self.system.ensure_stream(StreamSpec(stream, 1))

    def send(self, *values: bytes) -> None:
        self.system.append("in", [Message(None, value, 1, 0) for value in values])

    def loop(self, *, until_drained: bool = False, **config: str) -> BatchLoop:
        task = AssignedTask(TaskName("Partition 0"), (SystemStreamPartition("local", "in", 0),), 0)
        settings = {**CONFIG, **{key.replace("_", "."): value for key, value in config.items()}}
        assignment = Assignment(
            JobId("job"), ContainerId("0"), 1, settings, (task,), until_drained=until_drained
        )
        started = prepare(assignment, self.system, None, self.clock, self.home)

        def on_batch(number: int, outcome: BatchOutcome) -> None:
            self.outcomes.append((number, outcome))

        return BatchLoop(started, self.engine, self.control, self.clock, on_batch)

    def outputs(self) -> list[bytes]:
        return [value for _, found in self.system.read("out", 0, 0) for value in found.column(1).to_pylist()]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    with closing(made.system):
        yield made
        made.engine.close()


def test_it_runs_until_what_is_there_is_consumed_and_counts_on_in_the_next_start(running: Running) -> None:
    running.send(*[b"x"] * RECORDS)
    assert running.loop(until_drained=True, task_max_records_per_batch="4").run(None) is Ended.DRAINED
    assert [(number, outcome.records) for number, outcome in running.outcomes] == [(0, 4), (1, 4), (2, 2)]
    running.send(b"y")
    assert running.loop(until_drained=True).run(None) is Ended.DRAINED
    assert [number for number, _ in running.outcomes] == [0, 1, 2, 3]
    assert running.outputs() == [b"x"] * RECORDS + [b"y"]
    lineages = {batch.plan.lineage for batch in running.engine.batches}
    assert len(lineages) == 2, "each start has a lineage of its own"


def test_an_interruption_ends_it_between_two_batches(running: Running) -> None:
    running.send(b"x")
    running.control.on_wait = running.control.set
    assert running.loop().run(None) is Ended.INTERRUPTED
    assert running.outputs() == [b"x"]
    running.send(b"y")
    assert running.loop().run(None) is Ended.INTERRUPTED
    assert len(running.engine.batches) == 1, "it was asked before the batch"


def test_a_task_may_end_its_container(running: Running) -> None:
    running.send(b"x", b"end")
    assert running.loop().run(None) is Ended.SHUTDOWN
    assert running.outputs() == [b"x", b"end"]


def test_it_waits_longer_and_longer_while_nothing_comes_and_keeps_its_engine_alive(running: Running) -> None:
    running.control.on_wait = lambda: running.control.set() if len(running.control.waits) == 20 else None
    assert running.loop().run(None) is Ended.INTERRUPTED
    waits = running.control.waits
    assert (waits[0], waits[-1]) == (0.005, 0.05)
    assert waits == sorted(waits)
    assert running.engine.kept_alive == 20


def test_batches_begin_at_their_interval(running: Running) -> None:
    running.send(*[b"x"] * 2)
    begins: list[float] = []
    run = running.engine.run

    def noted(spec: RunnerSpec, batch: Batch, place: Path) -> list[TaskResult]:
        begins.append(running.clock.monotonic_s())
        return run(spec, batch, place)

    running.engine.run = noted  # type: ignore[method-assign]  # the same, seen
    running.control.on_wait = lambda: running.control.set() if len(begins) == 2 else None
    running.loop(task_max_records_per_batch="1", task_trigger_interval_ms="3000").run(None)
    assert begins[1] - begins[0] == pytest.approx(3.0)


def test_a_batch_that_failed_is_planned_anew_by_the_next_start_from_what_is_committed(
    running: Running,
) -> None:
    running.send(*[b"x"] * RECORDS)
    running.engine.failure = LogUnreachable("no broker answers")
    with pytest.raises(LogUnreachable):
        running.loop(until_drained=True).run(None)
    running.engine.failure = None
    assert running.loop(until_drained=True, task_max_records_per_batch="5").run(None) is Ended.DRAINED
    sizes = [outcome.records for _, outcome in running.outcomes]
    assert sizes == [5, 5], "a smaller limit acts at once"
    assert running.outputs() == [b"x"] * RECORDS


def test_a_folder_says_whether_a_living_process_works_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "job-1" / "container-0"
    assert not is_run_in(folder)
    with running_in(folder):
        (folder / "batches").mkdir()
        with running_in(folder):
            assert is_run_in(folder)
            assert (folder / "batches").exists(), "of a living process"
    assert not is_run_in(folder)
    held = f"from pathlib import Path; from grete.container.run_lock import *; r = running_in(Path({str(folder)!r}))"
    command = [sys.executable, "-c", f"{held}; r.__enter__(); print('held', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert is_run_in(folder)
        process.kill()
    assert not is_run_in(folder)
    with running_in(folder):
        assert not (folder / "batches").exists(), "what a killed one has left"
