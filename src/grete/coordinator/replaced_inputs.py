"""Inputs that were deleted and recreated: the job's checkpoints are offsets of a stream that is no more.

Where the new stream holds fewer records an offset is out of range and shows; where it holds more, the job would go on
in the middle of it and it would be unknown what it left out. So a stream's id is remembered with the job model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from grete.checkpoint.task_commit import TaskCommit
from grete.config.settings import Settings
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.input_streams import read_input_uids
from grete.metadata.startpoints import (
    FAN_OUT_NAMESPACE,
    NAMESPACE,
    decoded_fan_outs,
    live_startpoints,
    startpoint_key,
)
from grete.model.ids import SystemStream, SystemStreamPartition, TaskName

Commits = Mapping[TaskName, TaskCommit]


def replaced_inputs(
    stream: CoordinatorStream,
    uids: Mapping[SystemStream, str],
    settings: Settings,
    read_commits: Callable[[], Commits],
    now_ms: int,
) -> Iterator[str]:
    """A problem, with the way out, for each input that is not the stream which the checkpoints are of.

    It is none when the job reads the new one from where an operator said: `samza.reset.offset`, or a startpoint for
    every SSP that has a checkpoint.
    """
    known = read_input_uids(stream)
    changed = [one for one, uid in sorted(uids.items()) if uid and known.get(one, uid) != uid]
    if not changed:
        return
    commits = read_commits()
    for one in changed:
        of_one = settings.stream(one)
        stale = [] if of_one.is_reset else list(_without_startpoint(stream, one, commits, now_ms))
        if stale:
            yield (
                f"{one} was deleted and recreated since this job read it (id {known[one]}, now {uids[one]}), and the "
                f"job's checkpoints are offsets of the old one: it is unknown what of the new one they would leave "
                f"out. Say where to go on, with the job stopped: grete checkpoint rewind --job NAME "
                f"{' '.join(f'--ssp {ssp}' for ssp in stale[:20])} --to oldest --execute (or --to upcoming), or set "
                f"{of_one.key('samza.reset.offset')}=true for one run"
            )


def _without_startpoint(
    stream: CoordinatorStream, one: SystemStream, commits: Commits, now_ms: int
) -> list[SystemStreamPartition]:
    asked = AskedStarts(stream, now_ms)
    return sorted(
        {
            ssp
            for task, commit in commits.items()
            for ssp in commit.offsets
            if ssp.system_stream == one and not asked.cover(ssp, [task])
        }
    )


class AskedStarts:
    """The startpoints of a stream that are waiting for their tasks, read once."""

    def __init__(self, stream: CoordinatorStream, now_ms: int) -> None:
        self._live = live_startpoints(stream.raw(NAMESPACE), now_ms)
        self._fanned_out = decoded_fan_outs(stream.raw(FAN_OUT_NAMESPACE))

    def cover(self, ssp: SystemStreamPartition, tasks: Iterable[TaskName]) -> bool:
        """Whether one says where the SSP goes on, in every task or in one of these."""
        return startpoint_key(ssp, None) in self._live or any(
            startpoint_key(ssp, task) in self._live or ssp in self._fanned_out.get(task, {}) for task in tasks
        )
