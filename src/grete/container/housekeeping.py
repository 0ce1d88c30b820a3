"""The upkeep of a container's streams, fence and checkpoint log, done between its batches."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence

from grete.checkpoint.names import checkpoint_log_name
from grete.clock import Clock, SystemClock
from grete.container.assignment import Assignment
from grete.errors import StorageFull
from grete.keyed_log.base import KeyedLog
from grete.model.fence import Fence
from grete.model.ids import SystemStream
from grete.model.streams import StreamPolicy
from grete.systems.base import System
from grete.systems.outputs import written_together

_log = logging.getLogger(__name__)


def housekeeping(
    assignment: Assignment, system: System, fences: Sequence[Fence], clock: Clock | None = None
) -> Callable[[], object]:
    """A function to call between the container's batches, which are under the fences."""
    tidy = system.housekeeping(policies(assignment), fences)
    settings = assignment.settings
    lags = [settings.store(store).compaction_lag_ms for store in settings.store_names]
    log = system.checkpoint_log(checkpoint_log_name(assignment.job))
    commits = CommitRetention(log, max(lags, default=0), clock or SystemClock())

    def step() -> None:
        tidy()
        commits.step()

    return step


class CommitRetention:
    """Keeps a checkpoint log short where no broker does: every start of the job reads all of it.

    The last 50,000 records stay for rewinds to a batch, and of the last `lag_ms` one commit of a task every ten
    seconds; of earlier ones the last of each task. Shares commit a hundred times a second: all of four hours would be
    a million records for each of them.
    """

    def __init__(
        self,
        log: KeyedLog,
        lag_ms: int,
        clock: Clock,
        *,
        kept: int = 50_000,
        due: int = 5_000,
        at_once: int = 50_000,
        apart_ms: int = 10_000,
    ) -> None:
        self._log = log
        self._lag_ms = lag_ms
        self._clock = clock
        self._kept = kept
        self._due = due
        self._at_once = at_once  # a log that was never compacted has millions, and there are batches to run
        self._apart_ms = apart_ms
        self._next = self._done = self._thinned = 0

    def step(self) -> int:
        """Drop what is shadowed and old enough, if it is much; returns how many records went."""
        end = self._log.end() - self._kept if self._log.keeps_shadowed else -1
        if end < self._next:
            return 0
        thin_to = min(end, self._thinned + self._at_once)
        old = self._older_than_lag(end)
        self._done = min(old, self._done + self._at_once)
        if self._done == old and thin_to == end:
            self._next = end + self._due
        try:
            return self._drop(thin_to)
        except StorageFull as error:
            _log.warning("the checkpoint log is not compacted: %s", error)
            return 0

    def _drop(self, thin_to: int) -> int:
        dropped = 0
        if self._lag_ms > 0:
            dropped += self._log.drop_shadowed(
                after=self._thinned - 1, before=thin_to, apart_ms=self._apart_ms
            )
        self._thinned = thin_to
        return dropped + self._log.drop_shadowed(before=self._done)

    def _older_than_lag(self, end: int) -> int:
        """An offset up to `end` before which all is older, close to the last one: a look reads 4,000 records."""
        if self._lag_ms == 0:
            return end
        horizon_ms, low, high = self._clock.wall_ms() - self._lag_ms, 0, end
        while high - low > self._due:
            middle = (low + high) // 2
            [record] = itertools.islice(self._log.read(middle - 1), 1)
            if record.offset >= high or record.timestamp_ms >= horizon_ms:
                high = middle
            else:
                low = record.offset + 1
        return low


def policies(assignment: Assignment) -> list[StreamPolicy]:
    """How long the records of each of the container's streams are kept, of the system that it commits to.

    Of a stream that it only reads these are the partitions of its tasks: the others are other containers'.
    """
    name, settings = assignment.settings.task.commit_system, assignment.settings
    changelogs = [
        StreamPolicy(
            settings.store(store).changelog_stream(assignment.job),
            partitions=frozenset(task.changelog_partition for task in assignment.tasks),
            min_compaction_lag_ms=settings.store(store).compaction_lag_ms,
            retention_ms=settings.store(store).ttl_ms,
        )
        for store in settings.store_names
    ]
    read: dict[str, set[int]] = {}
    for ssp in assignment.ssps:
        if ssp.system == name:
            read.setdefault(ssp.stream, set()).add(ssp.partition)
    written = {settings.task.written_as(one).stream: one for one in written_together(settings, name)}
    known_as = {**{stream: SystemStream(name, stream) for stream in read}, **written}
    others = [
        StreamPolicy(
            stream,
            partitions=None if stream in written else frozenset(read[stream]),
            retention_ms=settings.stream(declared).retention_ms,
            retention_bytes=settings.stream(declared).retention_bytes,
        )
        for stream, declared in sorted(known_as.items())
    ]
    return [*changelogs, *others]
