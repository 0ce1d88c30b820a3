"""Of a clone: which job it was made of, and where that one's outputs ended when it began with its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from grete.metadata.coordinator_stream import CoordinatorStream

CLONE = "grete-clone"
Ends = Mapping[str, Mapping[int, int]]
"""The upcoming offset of each partition of streams."""


@dataclass(frozen=True, slots=True)
class CloneOrigin:
    """The original's name, and the end of each of its outputs; none when the clone did not begin where it stood."""

    of: str
    ends: Ends = field(default_factory=dict)


def write_origin(stream: CoordinatorStream, origin: CloneOrigin) -> None:
    """Say that the clone is made. Durable on return."""
    stream.append([stream.entry(CLONE, CLONE, {"of": origin.of, "ends": json.dumps(origin.ends)})])


def read_origin(stream: CoordinatorStream) -> CloneOrigin | None:
    """None of a job that is no clone, or was not made to its end."""
    message = stream.messages(CLONE).get(CLONE)
    if message is None or message.values is None:
        return None
    try:
        ends = {
            str(name): {int(partition): int(end) for partition, end in found.items()}
            for name, found in json.loads(message.values.get("ends", "{}")).items()
        }
    except (ValueError, TypeError, AttributeError):
        ends = {}  # what a clone is compared by is more then, and nothing is lost
    return CloneOrigin(message.values.get("of", ""), ends)
