"""Publishes committed offsets to the job's consumer group, for tools that show the lag of consumer groups.

They are written by a thread of their own after the commit, and never read here. So a group that is behind, refused or
gone costs a job nothing: neither a record nor the time of a batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType

from grete.clock import Clock
from grete.container.assignment import Assignment
from grete.container.group_offsets import GroupProgress, NextOffsets
from grete.errors import Fenced, GreteError
from grete.model.ids import ContainerId, SystemStreamPartition
from grete.systems.base import GroupOffsets, System

_log = logging.getLogger("grete.container")
_LAST_TIME_S = 12.0
"""A write gives up after about as long."""
_PUBLISHES_BROADCAST = ContainerId("0")
"""Every container reads all broadcast partitions, at its own pace; this container, which always exists, counts."""


@contextmanager
def open_publishers(
    assignment: Assignment, systems: Mapping[str, System], clock: Clock, starting: NextOffsets
) -> Iterator[OffsetPublishers]:
    """The publishers for the job's consumer groups, beginning with where the container starts.

    There is one for each of the `systems` that it reads from where the job has a group. Leaving the context, for
    whatever reason, is the container's end.
    """
    task, publishers = assignment.settings.task, list[OffsetPublisher]()
    ssps_of_tasks = [[str(ssp) for ssp in one.ssps] for one in assignment.tasks]
    with ExitStack() as held:
        for name, system in systems.items():
            shown, group = _shown(assignment, name, starting), task.shown_group(assignment.job, name)
            if not shown or group is None:
                continue
            fence = assignment.fence if name == task.commit_system else None
            opens = partial(system.group_offsets, group, fence)
            progress = GroupProgress(ssps_of_tasks, shown)
            publishers.append(held.enter_context(OffsetPublisher(opens, progress, clock)))
        yield OffsetPublishers(publishers)


def _shown(assignment: Assignment, system: str, starting: NextOffsets) -> dict[str, int]:
    """The container's own SSPs of a system. A broadcast one is every container's, and the first speaks for all; of
    tasks that share a partition by keys the one with the first bucket does.
    """
    shared = assignment.settings.task.broadcast_inputs
    left_out = () if assignment.container_id == _PUBLISHES_BROADCAST else shared
    speaks = {ssp for task in assignment.tasks for ssp in task.ssps if task.key_bucket <= 0 or ssp in shared}
    return {
        str(ssp): starting[str(ssp)] for ssp in sorted(speaks) if ssp not in left_out and ssp.system == system
    }


class OffsetPublishers:
    """One for each system in which the job has a consumer group; none of most jobs that are not on Kafka."""

    def __init__(self, of_systems: Sequence[OffsetPublisher] = ()) -> None:
        self.of_systems = of_systems

    def publish(self, next_offsets: NextOffsets, shut_down: Iterable[int] = ()) -> None:
        """See OffsetPublisher."""
        for one in self.of_systems:
            one.publish(next_offsets, shut_down)


class OffsetPublisher:
    """Writes what is due, at most once a second, and a last time at the end. One thread publishes."""

    def __init__(
        self, open_group: Callable[[], GroupOffsets | None], progress: GroupProgress, clock: Clock
    ) -> None:
        self._open_group = open_group
        self._progress = progress
        self._clock = clock
        self._changed = threading.Condition()
        self._is_ending = self._is_given_up = False
        self._thread = threading.Thread(target=self._run, name="grete-consumer-group", daemon=True)
        self._thread.start()

    def publish(self, next_offsets: NextOffsets, shut_down: Iterable[int] = ()) -> None:
        """A batch is committed that ends at these offsets, by the text of each SSP. Returns at once.

        `shut_down` are the tasks, by their index, that take part in no later batch.
        """
        with self._changed:
            self._progress.move(next_offsets, shut_down)
            self._changed.notify_all()

    def __enter__(self) -> OffsetPublisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write a last time, unless another container has taken over or the last write failed."""
        with self._changed:
            self._is_ending = True
            self._is_given_up = isinstance(error, Fenced) or self._progress.is_failing
            self._changed.notify_all()
            if self._is_given_up:
                return
        self._thread.join(_LAST_TIME_S)
        with self._changed:
            self._is_given_up = True

    # --- the thread ---

    def _run(self) -> None:
        try:
            group = self._open_group()
        except GreteError as error:
            _log.warning("offsets of this container are not published to the consumer group: %s", error)
            return
        if group is None:
            _log.warning("the system of the inputs has no consumer groups, so no offsets are published")
            return
        try:
            while offsets := self._next():
                self._write(group, offsets)
        except Fenced as error:
            _log.info("no more offsets are published to the consumer group: %s", error)
        finally:
            group.close()

    def _next(self) -> NextOffsets:
        """Wait for what is due; nothing at the end, when there is nothing left or no time for it."""
        with self._changed:
            while not self._is_ending:
                now_s = self._clock.monotonic_s()
                if due := self._progress.due(now_s):
                    return due
                self._changed.wait(self._progress.pause_s(now_s))
            return {} if self._is_given_up else self._progress.outstanding(self._clock.monotonic_s())

    def _write(self, group: GroupOffsets, offsets: NextOffsets) -> None:
        """Warns once in an outage, and says when it is over.

        Raises:
            Fenced: another container has taken over.
        """
        was_failing = self._progress.is_failing
        try:
            group.write({SystemStreamPartition.parse(ssp): offset for ssp, offset in offsets.items()})
        except Fenced:
            raise
        except GreteError as error:
            with self._changed:
                self._progress.failed(offsets, self._clock.monotonic_s())
                self._is_given_up = self._is_given_up or self._is_ending
            if not was_failing:
                _log.warning(
                    "%s. The job goes on, and so do its checkpoints; tools that show the group's lag see too much of "
                    "it until this works again, and it is tried again and again without another word",
                    error,
                )
            return
        with self._changed:
            self._progress.written(offsets, self._clock.monotonic_s())
        if was_failing:
            _log.info("the consumer group follows the job again")
