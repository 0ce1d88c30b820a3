"""Which containers run, as grete's own records in the coordinator stream: what a new coordinator adopts (S1-26).

A record is written before its process starts, again with a `handle` by which a launcher finds the process, and again
before the container gets its next assignment. So a container runs the assignment of its record or the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId

LAUNCH = "grete-container"
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


def write_launch(stream: CoordinatorStream, container: ContainerId, record: LaunchRecord | None) -> None:
    """Make it the container's record; None when nothing of it runs any more, which a full disk does not prevent."""
    values = None if record is None else {name: str(getattr(record, name)) for name in LaunchRecord.__slots__}
    stream.append([stream.entry(LAUNCH, container, values)], urgent=record is None)


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
