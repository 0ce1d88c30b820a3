"""Which dead letters were sent to their inputs again, as grete's own records in the coordinator stream.

A record for each partition of the dead letter stream: `system.stream.partition` -> the offsets as ranges, and which
stream of that name they are of, since offsets begin again when a stream is recreated.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import SystemStream, SystemStreamPartition

REPLAYED = "grete-replayed-letters"
_RANGES = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
Range = tuple[int, int]


class ReplayedLetters:
    """Those of one stream; `uid` distinguishes it from a later one of its name."""

    def __init__(self, stream: CoordinatorStream, letters: SystemStream, uid: str) -> None:
        self._stream = stream
        self._letters = letters
        self._uid = uid

    def has(self, partition: int, offset: int) -> bool:
        """Whether it was sent again."""
        return any(first <= offset <= last for first, last in self._ranges(partition))

    def add(self, partition: int, offsets: Collection[int]) -> None:
        """Note that they were sent again. Durable on return."""
        ranges = _joined([*self._ranges(partition), *((offset, offset) for offset in offsets)])
        text = ",".join(f"{first}-{last}" for first, last in ranges)
        self._stream.append(
            [self._stream.entry(REPLAYED, self._key(partition), {"offsets": text, "uid": self._uid})]
        )

    def _key(self, partition: int) -> str:
        return str(SystemStreamPartition(self._letters.system, self._letters.stream, partition))

    def _ranges(self, partition: int) -> list[Range]:
        message = self._stream.messages(REPLAYED).get(self._key(partition))
        values = (message.values if message is not None else None) or {}
        if values.get("uid") != self._uid:
            return []
        found = [_RANGES.fullmatch(part) for part in values.get("offsets", "").split(",")]
        return [(int(one[1]), int(one[2] or one[1])) for one in found if one is not None]


def _joined(ranges: Collection[Range]) -> list[Range]:
    """Sorted, those that touch as one."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
