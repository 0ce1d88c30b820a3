"""Inputs that are not what checkpoints say: deleted and recreated, or read under another name of their system.

Where the new stream holds fewer records an offset is out of range and shows; where it holds more, the job would go on
in the middle of it and it would be unknown what it left out. So a stream's id is remembered with the job model. It
also shows a stream that a system of another name has, of which there are no checkpoints by that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from grete.checkpoint.task_commit import Commits
from grete.config.key_tables.job import LINEAGE_STATE
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


def replaced_inputs(
    stream: CoordinatorStream,
    uids: Mapping[SystemStream, str],
    settings: Settings,
    read_commits: Callable[[], Commits],
    now_ms: int,
) -> Iterator[str]:
    """A problem, with the way out, for each input that is not the stream, or has not the name, of the checkpoints.

    It is none when the job reads the new one from where an operator said: `samza.reset.offset`, or a startpoint for
    every SSP that has a checkpoint.
    """
    known = read_input_uids(stream)
    changed = [one for one, uid in sorted(uids.items()) if uid and known.get(one, uid) != uid]
    renamed = dict(_renamed(known, uids))
    if not changed and not renamed:
        return
    commits = read_commits()
    yield from _left_behind(stream, renamed, settings, commits, now_ms)
    for one in changed:
        of_one = settings.stream(one)
        stale = [] if of_one.is_reset else list(_without_startpoint(stream, one, commits, now_ms))
        if stale:
            of_it = {ssp for commit in commits.values() for ssp in commit.offsets if ssp.system_stream == one}
            named = [str(one)] if set(stale) == of_it else list(map(str, stale[:20]))
            yield (
                f"{one} was deleted and recreated since this job read it (id {known[one]}, now {uids[one]}), and the "
                f"job's checkpoints are offsets of the old one: it is unknown what of the new one they would leave "
                f"out. {_ways_out(settings, one, named)}"
            )


def _ways_out(settings: Settings, one: SystemStream, named: Sequence[str]) -> str:
    """The commands that say where to go on with it; `named` are the parts of it that have none."""
    state, also = "", ""
    if settings.job.is_pipeline:  # its state in Spark is of the old one, too
        state, also = " --state discard", f" and {LINEAGE_STATE.name}=discard"
    which = " ".join(f"--ssp {name}" for name in named)
    return (
        f"Say where to go on, with the job stopped: grete checkpoint rewind --job {settings.job.id.shown} {which} "
        f"--to oldest{state} --execute (or --to upcoming), or set "
        f"{settings.stream(one).key('samza.reset.offset')}=true{also} for one run"
    )


def _renamed(
    known: Mapping[SystemStream, str], uids: Mapping[SystemStream, str]
) -> Iterator[tuple[SystemStream, SystemStream]]:
    """Each input that the job has read as a stream of another system, and that one."""
    for now, uid in uids.items():
        same = {one for one, other in {**known, **uids}.items() if uid and other == uid} - {now}
        if len({one.stream for one in same} | {now.stream}) == 1:  # a service without ids has one for all
            yield from ((now, was) for was in same if was not in uids)


def _left_behind(
    stream: CoordinatorStream,
    renamed: Mapping[SystemStream, SystemStream],
    settings: Settings,
    commits: Commits,
    now_ms: int,
) -> Iterator[str]:
    asked = RequestedStarts(stream, now_ms)
    read = {ssp: task for task, commit in commits.items() for ssp in commit.offsets}
    for now, was in sorted(renamed.items()):
        if settings.stream(now).is_reset or any(ssp.system_stream == now for ssp in read):
            continue
        left = [ssp for ssp in sorted(read) if ssp.system_stream == was]
        if any(not asked.cover(replace(ssp, system=now.system), [read[ssp]]) for ssp in left):
            yield (
                f"{now} is the stream that the job has read as {was}, and its checkpoints are by that name: it would "
                f"not go on there but begin at its offset default, and records would be left out or processed again. "
                f"Keep the system's name (systems.{was.system}.*). To start over, say so for one run with "
                f"{settings.stream(now).key('samza.reset.offset')}=true and samza.offset.default=oldest or upcoming, "
                f"or give the job a new job.id"
            )


def _without_startpoint(
    stream: CoordinatorStream, one: SystemStream, commits: Commits, now_ms: int
) -> list[SystemStreamPartition]:
    asked = RequestedStarts(stream, now_ms)
    return sorted(
        {
            ssp
            for task, commit in commits.items()
            for ssp in commit.offsets
            if ssp.system_stream == one and not asked.cover(ssp, [task])
        }
    )


class RequestedStarts:
    """The startpoints of a stream that are waiting for their tasks, read once."""

    def __init__(self, stream: CoordinatorStream, now_ms: int) -> None:
        self._live = live_startpoints(stream.raw(NAMESPACE), now_ms)
        self._fanned_out = decoded_fan_outs(stream.raw(FAN_OUT_NAMESPACE))

    def cover(self, ssp: SystemStreamPartition, tasks: Iterable[TaskName]) -> bool:
        """Whether one says where the SSP goes on, in every task or in one of these."""
        return startpoint_key(ssp, None) in self._live or any(
            startpoint_key(ssp, task) in self._live or ssp in self._fanned_out.get(task, {}) for task in tasks
        )
