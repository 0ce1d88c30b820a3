"""A share of a batch, in the Python worker of a Spark task: taken, processed and committed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grete.model.ending import failure_of, note
from grete.tasks.ranges import TaskGroup
from grete.tasks.results import TaskResult
from grete.tasks.runner import TaskRun
from grete.tasks.runtime import TaskWorkers
from grete.tasks.spec import BatchPlan, RunnerSpec, TaskProgress
from grete.tasks.worker_logs import attach_logs, flush_logs, hurry_logs

_workers: TaskWorkers | None = None


def _workers_for(spec: RunnerSpec) -> TaskWorkers:
    """This process's tasks; those of another container are given up first."""
    global _workers  # one Python worker serves one container at a time; a module is its only memory
    if _workers is None or _workers.spec.incarnation != spec.incarnation:
        if _workers is not None:
            _workers.close()
        attach_logs(spec)
        _workers = TaskWorkers(spec)
    return _workers


@contextmanager
def at_work(spec: RunnerSpec) -> Iterator[TaskWorkers]:
    """This process's tasks; what they logged is on its way afterwards, and if they failed it is there."""
    try:
        yield _workers_for(spec)
    except BaseException as error:
        note(error, failure_of(error))  # the driver gets its text
        flush_logs()
        raise
    hurry_logs()


@dataclass(frozen=True, slots=True)
class Share:
    """The input of a slot's tasks in a batch. `is_repeated` when it may have been tried before."""

    slot: int
    group: TaskGroup
    tick: bool = False
    is_repeated: bool = False


def run_share(workers: TaskWorkers, plan: BatchPlan, share: Share) -> list[TaskResult]:
    """Process a share, and commit it; tasks that are committed already answer with a report only."""
    tasks = {task for task, _ in share.group} - plan.skip
    commits = workers.commits
    workers.make_room(len(tasks))
    tokens: dict[int, str] = {}
    try:
        results = commits.begin(plan, share.slot, tasks, is_repeated=share.is_repeated)
        todo = tasks - {result.report.task for result in results}
        for index, ranges in share.group:
            if index in todo:
                run = TaskRun(workers.worker(index), plan.progress.get(index, TaskProgress()), workers.spec)
                made = run.process(ranges, tick=share.tick)
                tokens[index] = made.report.token
                commits.add(made)
                del made  # its columns are as large as its share
        results += commits.finish()
    except BaseException:
        for index in tasks:
            workers.drop(index)
        raise
    for result in results:
        if tokens.get(result.report.task) == result.report.token:
            workers.succeeded(result.report.task, result.report.token)
    return results


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of a batch, `tick` when `window` is due; which worker did a slot last; the folder of the claims.

    A share is what the tasks of one slot read. A worker keeps of its shares what is dear: open stores, instances, a
    consumer that stands where the next range begins, a transactional id. Spark has as many workers as tasks at once
    and gives a task to the one that waits longest: measured on 2 cores, 34 of 40 shares came to a worker that did not
    have them, and half of the workers' time went into fetching what the other one had fetched.

    So on a local master, where all workers see one file system, the share is chosen by the worker: a claim is a
    symbolic link, which is made once or not at all, and names the Spark task that made it, so that its repetition
    gets the same share. On other masters a task's number names its share.
    """

    groups: Mapping[int, TaskGroup]
    tick: bool
    holders: Mapping[int, str]
    claims: str | None = None

    def take(self, worker: str, number: int) -> int:
        """The slot that the Spark task of this number does. Each is done once; a repeated task gets its own again."""
        if self.claims is None:
            return sorted(self.groups)[number]
        directory = Path(self.claims)
        for link in directory.iterdir():
            if os.readlink(link) == str(number):
                return int(link.name)
        for slot in self._wishes(worker):
            with contextlib.suppress(FileExistsError):
                (directory / str(slot)).symlink_to(str(number))
                return slot
        raise AssertionError(f"{len(self.groups)} shares for Spark task {number} and those before it")

    def _wishes(self, worker: str) -> list[int]:
        """First the worker's own slots, then those without a holder, then those of others, from the end."""
        own = [slot for slot in sorted(self.groups) if self.holders.get(slot) == worker]
        free = [slot for slot in sorted(self.groups) if slot not in self.holders]
        others = sorted(self.groups.keys() - {*own, *free}, reverse=True)
        return [*own, *free, *others]


def claims_in(place: str | os.PathLike[str]) -> str:
    """A folder for claims in the place of a batch."""
    claims = Path(place) / "claims"
    claims.mkdir()
    return str(claims)


@dataclass(frozen=True, slots=True)
class ShareRunner:
    """The work of a Spark task of a batch: take a share and run it."""

    spec: RunnerSpec
    plan: BatchPlan
    shares: Shares

    def __call__(self, number: int, *, is_repeated: bool) -> tuple[int, str, list[TaskResult]]:
        """Process a share; returns its slot, the worker that did it, and the results of its tasks."""
        with at_work(self.spec) as workers:
            slot = self.shares.take(workers.id, number)
            share = Share(slot, self.shares.groups[slot], self.shares.tick, is_repeated)
            return slot, workers.id, run_share(workers, self.plan, share)


class Places:
    """Where batches have their claims, below a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextlib.contextmanager
    def of_a_batch(self) -> Iterator[str]:
        """A place for one run of a batch, and of no other: workers of a run that was given up may still come."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory) as place:
            yield place
