"""StreamTasks over one Spark partition, without Spark: what they see, hand back, and leave behind when they fail."""

from __future__ import annotations

import itertools
import json
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.diagnostics.streams import DiagnosticsConfig
from grete.errors import (
    ConfigError,
    LogError,
    ProcessingError,
    StorageFull,
    StreamNotFound,
    StreamUnreachable,
)
from grete.model.ending import failure_of, noted_in
from grete.model.fence import Fence
from grete.model.ids import JobId, SystemStream, SystemStreamPartition, TaskName
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.systems.log_sink import LogStream
from grete.systems.records import records, with_offsets
from grete.tasks import share_task
from grete.tasks.commit.executor import SlotCommits
from grete.tasks.results import Processed
from grete.tasks.runner import TaskRun
from grete.tasks.runtime import TaskWorkers
from grete.tasks.spec import CommitSpec, RunnerSpec, StoreSpec, TaskProgress, TaskReport, TaskSpec, advanced
from grete.tasks.worker_logs import attach_logs

TASKS = '''
import logging
import apsw
import grete
from grete import errors

FAULTS = {
    "memory": MemoryError,
    "disk full": lambda: errors.StorageFull("the disk is full"),
    "brokers away": lambda: errors.StreamUnreachable("no broker answers"),
    "i/o error": apsw.IOError,
}

class Sum(grete.StreamTask):
    """Adds up per key; a message "bad" fails after it has changed the store and sent something."""

    def init(self, context):
        self.sums = context.store("sums")
        self.name = context.task_name

    def process(self, envelope, collector, coordinator):
        logging.getLogger("task").warning("at %s", envelope.offset)
        total = (self.sums.get(envelope.key) or 0) + 1
        self.sums.put(envelope.key, total)
        collector.send("local.out", [self.name, str(envelope.system_stream_partition), total], key=envelope.key)
        if envelope.message == "bad":
            raise RuntimeError("poison")
        if envelope.message == "stop":
            coordinator.shutdown()
        if envelope.message == "elsewhere":
            collector.send("local.nowhere", 1)
        if envelope.message == "no such partition":
            collector.send("local.out", 1, partition=7)
        if envelope.message == "not a key":
            self.sums.put({"a": "dict"}, 1)
        if envelope.message == "file of its own":
            open("/nowhere/at/all")
        if envelope.message in FAULTS:
            raise FAULTS[envelope.message]()
        if envelope.message == "wrapped":
            try:
                raise errors.StreamUnreachable("no broker answers")
            except errors.GreteError as error:
                raise RuntimeError("something went wrong") from error

    def window(self, collector, coordinator):
        collector.send("local.out", ["window", self.name, sum(value for _, value in self.sums.all())])

class NotATask:
    pass
'''
SSPS = (SystemStreamPartition("local", "all", 0), SystemStreamPartition("local", "in", 0))
TICK = -1
"""The input of a row that is no record, but lets `window` be called."""
Row = tuple[int, int, int, str | None, Any]


class Executor:
    """One Python worker that runs partitions and commits what they hand back."""

    is_isolated = False

    def __init__(self, directory: Path, system: LocalSystem, **settings: str) -> None:
        self.system = system
        for spec in (StreamSpec("out", 2), StreamSpec("dead", 1), StreamSpec("changes", 2, compacted=True)):
            system.create_stream(spec)
        application = directory / "application"
        application.mkdir(exist_ok=True)
        (application / "tasks_under_test.py").write_text(TASKS)
        switch = {"job.split.deployment.enabled": "true"} if self.is_isolated else {}
        config = {"systems.local.samza.key.serde": "string", "systems.local.samza.msg.serde": "json"}
        self.spec = RunnerSpec(
            incarnation=str(directory),
            job="job-1",
            settings=Settings.of({**config, **switch, **settings}),
            task_class=settings.get("task.class", "tasks_under_test:Sum"),
            application_path=str(application),
            ssps=SSPS,
            tasks=(TaskSpec(0, TaskName("one"), (0, 1), 0), TaskSpec(1, TaskName("two"), (0,), 1)),
            stores=(StoreSpec("sums", "changes", system.stream("changes").uid),),
            store_directory=str(directory / "stores"),
            default_system="local",
            home=str(system.directory.parent),
            dead_letter_stream="dead" if settings.get("dead.letters") else None,
            commit=CommitSpec(
                Fence("container", 1), Fence("epoch/container", 1), "checkpoints", "grouper", -1
            ),
        )
        system.raise_fence([Fence("container", 1)])
        self.log_end = -1
        self.progress: dict[int, TaskProgress] = {}

    def workers(self) -> TaskWorkers:
        """Those of the attempt before, if the worker was not replaced."""
        known = _workers.get("one")
        if known is None or known.spec is not self.spec:
            forget_worker()
            _workers["one"] = TaskWorkers(self.spec)
        return _workers["one"]

    def attempt(self, *rows: Row) -> list[Processed]:
        """Run without committing."""
        with share_task.told(self.spec):
            workers = self.workers()
            runs: dict[int, TaskRun] = {}
            try:
                for task, ssp, group in arrivals(rows):
                    if task not in runs:
                        progress = self.progress.get(task, TaskProgress())
                        runs[task] = TaskRun(workers.worker(task), progress, self.spec)
                    if ssp == TICK:
                        runs[task].window()
                    else:
                        runs[task].process(ssp, group, group.column(3)[group.num_rows - 1].as_py() + 1)
                return [run.finish() for run in runs.values()]
            except BaseException:
                for task in runs:
                    workers.drop(task)
                raise

    def commit(self, made: list[Processed]) -> dict[int, TaskReport]:
        """Make it visible, as a share does."""
        with share_task.told(self.spec):
            workers = self.workers()
            commits = SlotCommits(
                self.spec,
                self.system,
                SystemClock(),
                workers.id,
                slot=0,
                lineage="l",
                log_end=self.log_end,
                elsewhere=workers.outputs.append,
            )
            commits.resume([])
            reports = commits.commit(0, made)
            for report in reports:
                self.progress[report.task] = advanced(self.progress.get(report.task, TaskProgress()), report)
                workers.succeeded(report.task, report.token)
        self.log_end = self.system.checkpoint_log("checkpoints").end()
        return {report.task: report for report in reports}

    def run(self, *rows: Row) -> dict[int, TaskReport]:
        return self.commit(self.attempt(*rows))

    def outputs(self, stream: str = "out") -> list[Any]:
        found = []
        for partition in range(self.system.partition_count(stream)):
            for _, batch in self.system.read(stream, partition, 0):
                found += [json.loads(value) for value in batch.column(1).to_pylist()]
        return found


def arrivals(rows: tuple[Row, ...]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Task, input and records: consecutive rows of a task's input come together."""
    for (task, ssp), found in itertools.groupby(rows, key=lambda row: row[:2]):
        group = list(found)
        keys = [None if key is None else key.encode() for _, _, _, key, _ in group]
        values = [v if isinstance(v, bytes) else json.dumps(v).encode() for _, _, _, _, v in group]
        offsets = pa.array([offset for _, _, offset, _, _ in group], pa.int64())
        yield task, ssp, with_offsets(records(keys, values, [1000] * len(group)), offsets)


_workers: dict[str, TaskWorkers] = {}


def forget_worker() -> None:
    """A replaced Python worker: its memory is gone."""
    if _workers:
        _workers.pop("one").close()


@pytest.fixture(params=["in the worker", "in a process beside it"], autouse=True)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The application's place."""
    monkeypatch.setattr(Executor, "is_isolated", request.param != "in the worker")
    return str(request.param)


@pytest.fixture
def executor(tmp_path: Path, system: LocalSystem) -> Iterator[Executor]:
    yield Executor(tmp_path, system)
    forget_worker()


def totals(executor: Executor) -> dict[str, int]:
    forget_worker()
    log = executor.system.read("changes", 0, 0)
    state: dict[str, int] = {}
    for _, batch in log:
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            state[key.decode()] = json.loads(value)
    return state


def test_a_task_sees_its_streams_and_its_own_state(executor: Executor) -> None:
    reports = executor.run((0, 0, 0, "k", 1), (0, 1, 0, "k", 1), (0, 1, 1, "k", 1), (1, 0, 0, "k", 1))
    assert {index: report.records for index, report in reports.items()} == {0: 3, 1: 1}
    assert sorted(executor.outputs()) == [
        ["one", "local.all.0", 1],
        ["one", "local.in.0", 2],
        ["one", "local.in.0", 3],
        ["two", "local.all.0", 1],
    ]


def test_state_goes_on_in_the_same_worker_and_in_a_new_one(executor: Executor) -> None:
    executor.run((0, 1, 0, "k", 1))
    executor.run((0, 1, 1, "k", 1))
    forget_worker()
    executor.run((0, 1, 2, "k", 1))
    assert [total for _, _, total in executor.outputs()] == [1, 2, 3]


def test_an_attempt_that_was_not_committed_leaves_no_trace(executor: Executor) -> None:
    executor.run((0, 1, 0, "k", 1))
    executor.attempt((0, 1, 1, "k", 1), (0, 1, 2, "k", 1))
    executor.run((0, 1, 1, "k", 1))
    assert [total for _, _, total in executor.outputs()] == [1, 2]
    assert totals(executor) == {"k": 2}


def test_of_two_attempts_the_committed_one_counts(executor: Executor) -> None:
    first = executor.attempt((0, 1, 0, "k", 1))
    [other] = executor.attempt((0, 1, 0, "other", 1))
    executor.commit(first)
    for change in other.changes:
        change.keep(other.report.token, 1)  # it dies just before it commits
    forget_worker()
    executor.run((0, 1, 1, "k", 1))
    assert [total for _, _, total in executor.outputs()] == [1, 2]
    assert totals(executor) == {"k": 2}


def test_rows_at_or_below_the_checkpoint_are_not_processed_again(executor: Executor) -> None:
    executor.run((0, 1, 0, "k", 1), (0, 1, 1, "k", 1))
    reports = executor.run((0, 1, 0, "k", 1), (0, 1, 1, "k", 1), (0, 1, 2, "k", 1))
    assert reports[0].records == 1
    assert totals(executor) == {"k": 3}


def test_window_is_called_on_a_tick_also_without_messages(executor: Executor) -> None:
    executor.run((0, 1, 0, "k", 1), (0, -1, 0, None, None))
    executor.run((0, -1, 0, None, None))
    assert executor.outputs().count(["window", "one", 1]) == 2


def test_a_poison_message_names_task_ssp_and_offset_and_nothing_stays(executor: Executor) -> None:
    executor.run((0, 1, 0, "k", 1))
    with pytest.raises(ProcessingError, match=r"task 'one' could not process local\.in\.0 offset 2.*poison"):
        executor.attempt((0, 1, 1, "k", 1), (0, 1, 2, "k", "bad"))
    executor.run((0, 1, 1, "k", 1))
    assert totals(executor) == {"k": 2}


def test_with_dead_letters_only_the_poison_is_undone(tmp_path: Path, system: LocalSystem) -> None:
    executor = Executor(tmp_path, system, **{"dead.letters": "yes"})
    reports = executor.run((0, 1, 0, "k", 1), (0, 1, 1, "k", "bad"), (0, 1, 2, "k", 1))
    assert (reports[0].dead_letters, reports[0].records) == (1, 3)
    assert [total for _, _, total in executor.outputs()] == [1, 2]
    assert totals(executor) == {"k": 2}
    [letter] = executor.outputs("dead")
    assert {name: letter[name] for name in ("task", "ssp", "offset")} == {
        "task": "one",
        "ssp": "local.in.0",
        "offset": "1",
    }


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("memory", MemoryError),
        ("disk full", StorageFull),
        ("brokers away", StreamUnreachable),
        ("wrapped", RuntimeError),
        ("elsewhere", StreamNotFound),
    ],
)
def test_a_fault_of_the_machine_makes_no_dead_letter(
    tmp_path: Path, system: LocalSystem, message: str, kind: type[Exception]
) -> None:
    """The message is as good as any: the batch is given up, and repeated when the machine is well."""
    executor = Executor(tmp_path, system, **{"dead.letters": "yes"})
    with pytest.raises(kind) as raised:
        executor.attempt((0, 1, 0, "k", 1), (0, 1, 1, "k", message))
    failure = failure_of(raised.value)
    assert (failure.task, failure.place) == ("one", "local.in.0 offset 1")
    assert executor.outputs("dead") == []


@pytest.mark.parametrize("place", ["in the worker"], indirect=True)
def test_an_error_of_sqlite_beside_our_own_files_is_the_machines(tmp_path: Path, system: LocalSystem) -> None:
    executor = Executor(tmp_path, system, **{"dead.letters": "yes"})
    with pytest.raises(apsw.IOError):
        executor.attempt((0, 1, 0, "k", "i/o error"))


def test_a_message_whose_store_cannot_be_read_makes_no_dead_letter(
    tmp_path: Path, system: LocalSystem
) -> None:
    executor = Executor(tmp_path, system, **{"dead.letters": "yes"})
    run = TaskRun(executor.workers().worker(0), TaskProgress(), executor.spec)
    file = run.worker.stores["sums"].file
    file._connection.close()
    [(_, _, rows)] = arrivals(((0, 1, 0, "k", 1),))
    with pytest.raises(LogError, match="sums") as raised:
        run.process(1, rows, 1)
    assert failure_of(raised.value).place == "local.in.0 offset 0"
    file._connection = file._connect()


@pytest.mark.parametrize("place", ["in the worker"], indirect=True)
def test_a_store_whose_file_cannot_be_read_makes_no_dead_letter(tmp_path: Path, system: LocalSystem) -> None:
    executor = Executor(tmp_path, system, **{"dead.letters": "yes"})
    executor.run((0, 1, 0, "k", 1))
    store = executor.workers().worker(0).stores["sums"]
    store.file._connection.close()
    with pytest.raises(LogError, match="sums"):
        store.get("another")
    store.file._connection = store.file._connect()


@pytest.mark.parametrize("message", ["bad", "no such partition", "not a key", "file of its own"])
def test_what_the_application_or_its_message_did_goes_to_the_dead_letters(
    tmp_path: Path, system: LocalSystem, message: str
) -> None:
    executor = Executor(tmp_path, system, **{"dead.letters": "yes"})
    reports = executor.run((0, 1, 0, "k", 1), (0, 1, 1, "k", message), (0, 1, 2, "k", 1))
    assert reports[0].dead_letters == 1
    assert totals(executor) == {"k": 2}


@pytest.mark.parametrize("message", ["bad", "not a key", "no such partition", "disk full"])
def test_whatever_ends_a_batch_says_at_which_message(executor: Executor, message: str) -> None:
    """Also when only the text of its trace arrives, as through Spark's JVM."""
    with pytest.raises(Exception) as raised:
        executor.attempt((0, 1, 0, "k", 1), (0, 1, 1, "k", message))
    text = "".join(traceback.format_exception(raised.value))
    failure = noted_in(text)
    assert failure == failure_of(raised.value)
    assert failure is not None
    assert (failure.task, failure.place) == ("one", "local.in.0 offset 1")
    assert failure.type in {"RuntimeError", "WireError", "ValueError", "StorageFull"}


def test_a_message_that_is_not_of_its_serde_is_poison(executor: Executor) -> None:
    with pytest.raises(ProcessingError, match="offset 7"):
        executor.attempt((0, 1, 7, "k", b"{"))


def test_what_a_task_logged_is_in_the_log_stream_when_its_batch_has_failed(
    tmp_path: Path, system: LocalSystem
) -> None:
    executor = Executor(tmp_path, system)
    settings = Settings.of({"systems.local.path": str(system.directory)})
    target = LogStream(SystemStream("local", "logs"), settings, tmp_path, 1, -1)
    diagnostics = DiagnosticsConfig(JobId("job"), "samza-container-0", target, None)
    executor.spec = replace(executor.spec, diagnostics=diagnostics, incarnation="with logs")
    with pytest.raises(ProcessingError):
        executor.attempt((0, 1, 0, "k", 1), (0, 1, 1, "k", "bad"))
    assert [event["message"] for event in executor.outputs("logs")] == ["at 0", "at 1"]
    attach_logs(replace(executor.spec, diagnostics=None))
    forget_worker()


def test_a_task_can_ask_to_be_shut_down(executor: Executor) -> None:
    assert executor.run((0, 1, 0, "k", "stop"))[0].shutdown_task


def test_sending_to_a_stream_that_is_not_there_says_how_to_make_it(executor: Executor) -> None:
    with pytest.raises(StreamNotFound, match="grete stream create"):
        executor.attempt((0, 1, 0, "k", "elsewhere"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tasks_under_test:Nothing", "no 'Nothing'"),
        ("no_such_module:X", "job.application.path"),
        ("tasks_under_test:NotATask", "not a grete.StreamTask"),
        ("nonsense", "module:Class"),
    ],
)
def test_a_wrong_task_class_is_explained(
    tmp_path: Path, system: LocalSystem, name: str, problem: str
) -> None:
    executor = Executor(tmp_path, system, **{"task.class": name})
    with pytest.raises(ConfigError, match=problem):
        executor.attempt((0, 1, 0, "k", 1))
    forget_worker()


def test_outputs_of_one_key_are_in_one_partition_in_order(executor: Executor) -> None:
    executor.run(*((0, 1, i, f"k{i % 7}", 1) for i in range(70)))
    seen: dict[bytes, set[int]] = {}
    for partition in range(2):
        for _, batch in executor.system.read("out", partition, 0):
            for key in batch.column(0).to_pylist():
                seen.setdefault(key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in seen.values())


def test_store_positions_follow_the_changelog(executor: Executor) -> None:
    executor.run((0, 1, 0, "a", 1), (0, 1, 1, "a", 1), (0, 1, 2, "b", 1))
    assert executor.progress[0].store_positions == {"sums": 2}
    ends: Mapping[int, Any] = executor.system.offsets("changes")
    assert ends[0].upcoming == "2"


def test_outputs_beyond_what_is_kept_as_objects_stay_in_order(tmp_path: Path, system: LocalSystem) -> None:
    executor = Executor(tmp_path, system, **{"dead.letters": "yes"})
    rows = [(0, 1, i, "k", "bad" if i % 7 == 0 else 1) for i in range(2_500)]
    executor.commit(executor.attempt(*rows[:1_200], *((0, 0, i, "k", 1) for i in range(10)), *rows[1_200:]))
    totals_sent = [total for _, _, total in executor.outputs()]
    assert totals_sent == list(range(1, len(totals_sent) + 1))
    assert len(totals_sent) == 10 + sum(1 for row in rows if row[4] == 1)
    forget_worker()
