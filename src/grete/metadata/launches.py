"""Which containers run, as grete's own records in the coordinator stream: what a new coordinator adopts (S1-26).

A record is written before its process starts, again with a `handle` by which a launcher finds the process, and again
before the container gets its next assignment. So a container runs the assignment of its record or the one before.
Who broke off (a driver was killed) may have executors that have not noticed, and still commit. That is recorded until
it is fenced off or started again, since the next coordinator may give its tasks to others first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId

LAUNCH = "grete-container"
BROKEN_OFF = "grete-container-broken-off"
_LARGEST = 1 << 62
"""Numbers are counted on from here and sent to containers in 64 bits."""


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One incarnation. `serial` numbers its last assignment; `handle` is empty until the process exists.

    `fence` is the epoch of its commits: higher than its own when it has given tasks away since it started. Records of
    earlier versions have none.
    """

    epoch: int
    serial: int
    handle: str
    tasks: str
    query: str
    process: str
    fence: int


def write_launch(stream: CoordinatorStream, container: ContainerId, record: LaunchRecord) -> None:
    """Make it the container's record."""
    values = {name: str(getattr(record, name)) for name in LaunchRecord.__slots__}
    stream.append([stream.entry(LAUNCH, container, values)])


def write_end(
    stream: CoordinatorStream, container: ContainerId, broken_off: LaunchRecord | None = None
) -> None:
    """The container does not run any more; a full disk does not prevent that this is written.

    `broken_off` is its record when something of it may still commit: `read_broken_off` returns it until it is
    started again, or this is called without.
    """
    marks = stream.entry(
        BROKEN_OFF, container, None if broken_off is None else {"fence": str(broken_off.fence)}
    )
    stream.append([stream.entry(LAUNCH, container, None), marks], urgent=True)


def read_broken_off(stream: CoordinatorStream) -> dict[ContainerId, int]:
    """The epoch under which each container may still commit that broke off and was not started again since."""
    started, found = read_launches(stream), {}
    for key, message in stream.messages(BROKEN_OFF).items():
        with suppress(KeyError, ValueError):
            fence = int((message.values or {})["fence"])
            if 0 <= fence < _LARGEST and key not in started:
                found[ContainerId(key)] = fence
    return found


def read_launches(stream: CoordinatorStream) -> dict[ContainerId, LaunchRecord]:
    """Every container that may run. A record that is not understood counts for nothing."""
    found = {}
    for key, message in stream.messages(LAUNCH).items():
        record = None if message.values is None else _record(message.values)
        if record is not None:
            found[ContainerId(key)] = record
    return found


def _record(values: Mapping[str, str]) -> LaunchRecord | None:
    try:
        epoch, serial = int(values["epoch"]), int(values["serial"])
        fence = int(values.get("fence", epoch))
        if not (0 <= epoch <= fence < _LARGEST and 0 <= serial < _LARGEST):
            return None
        return LaunchRecord(
            epoch, serial, values["handle"], values["tasks"], values["query"], values["process"], fence
        )
    except (KeyError, ValueError):
        return None
