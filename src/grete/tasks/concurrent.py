"""Messages of AsyncStreamTasks: several of each task in progress at a time, and those of a share's tasks together.

A transaction has all messages that were begun before it, so each wait for the slowest of them ends a turn: with what
has arrived meanwhile the next one begins. Code of the application runs in one thread, and only while a share waits
for it: a call that blocks keeps all of the share's tasks waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from grete.api import IncomingMessageEnvelope
from grete.application.calls import FAILURES
from grete.application.collector import GivenHeaders
from grete.arrow import pa
from grete.systems.inputs import Arrived
from grete.tasks.collector import Collector
from grete.tasks.event_loop import TaskEventLoop
from grete.tasks.runner import TaskRun, taken_of
from grete.tasks.share_limits import ShareLimits

T = TypeVar("T")


class _OwnCollector:
    """A collector for one message: what it sends has by default its time and trace, whatever runs beside it."""

    __slots__ = ("_collector", "_headers", "_time_ms")

    def __init__(self, collector: Collector, envelope: IncomingMessageEnvelope) -> None:
        self._collector = collector
        self._time_ms = envelope.timestamp_ms
        self._headers = envelope.headers

    def send(
        self,
        stream: str,
        message: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders | None = None,
    ) -> None:
        """See grete.MessageCollector."""
        time_ms = self._time_ms if timestamp_ms is None else timestamp_ms
        collector = self._collector
        collector.in_hand = self._headers
        collector.send(stream, message, key=key, partition=partition, timestamp_ms=time_ms, headers=headers)
        collector.in_hand = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Records that have arrived: `rows` are those for the task."""

    run: TaskRun
    ssp_index: int
    arrived: Arrived
    rows: pa.RecordBatch


def process_side_by_side(
    events: TaskEventLoop, limits: ShareLimits, pieces: Sequence[Piece]
) -> list[Arrived]:
    """Process the records, each task's in the order of its pieces; all that were begun have ended on return.

    Returns what has to be given again: a task that wants a commit begins no more before it.

    Raises:
        ProcessingError: a record cannot be processed, or not in time; those beside it were cancelled.
    """
    of_runs: dict[int, list[Piece]] = {}
    for piece in pieces:
        of_runs.setdefault(id(piece.run), []).append(piece)
    done = events.finish(_all(list(of_runs.values()), limits)) if pieces else {}
    arrived = {id(piece.arrived): piece.arrived for piece in pieces}
    taken = {id(p): taken_of(p.arrived.records, p.rows, done[id(p)]) for p in pieces}
    least = {one: min(taken[id(p)] for p in pieces if id(p.arrived) == one) for one in arrived}
    return [
        replace(arrived[one], records=rows.slice(count))
        for one, count in least.items()
        if (rows := arrived[one].records) is not None and count < rows.num_rows
    ]


async def _all(of_runs: Sequence[Sequence[Piece]], limits: ShareLimits) -> dict[int, int]:
    """How many records of each piece were processed."""
    try:
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(_process(pieces, limits, group)) for pieces in of_runs]
    except BaseExceptionGroup as failed:
        raise _first_of(failed) from None
    return {piece: count for run in runs for piece, count in run.result().items()}


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _process(pieces: Sequence[Piece], limits: ShareLimits, group: asyncio.TaskGroup) -> dict[int, int]:
    """The records of one task."""
    done = {id(piece): 0 for piece in pieces}
    turns = asyncio.Semaphore(limits.in_progress)
    for piece in pieces:
        run, begun, is_cut = piece.run, 0, False
        for envelope in run.envelopes(piece.ssp_index, piece.rows):
            await turns.acquire()
            if is_cut := run.wants_commit:
                turns.release()
                break
            begun += 1
            group.create_task(_one(run, envelope, turns, limits.message_s))
        if is_cut and not begun:
            break
        done[id(piece)] = run.passed(piece.ssp_index, piece.rows, begun, piece.arrived.next_offset)
        if is_cut:
            break
    return done


async def _one(
    run: TaskRun, envelope: IncomingMessageEnvelope, turns: asyncio.Semaphore, timeout_s: float | None
) -> None:
    worker = run.worker
    process = worker.receiver(envelope.system_stream_partition)
    start_s = worker.metrics.now_s()
    collector = _OwnCollector(worker.collector, envelope)
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            running = process(envelope, collector, worker.control)
            if running is not None:  # a store was filled
                await running
    except FAILURES as error:
        late = TimeoutError(f"it took longer than {timeout_s} s, see task.callback.timeout.ms")
        place = envelope.system_stream_partition, int(envelope.offset)
        run.fail(*place, late if limit.expired() else error)
    finally:
        turns.release()
    worker.metrics.processed(1, start_s)
