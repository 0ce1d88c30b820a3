"""Which partitions have to wait for others, because an order between streams or partitions is to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from grete.model.ids import SystemStreamPartition
from grete.systems.admin import PartitionOffsets

Positions = Mapping[str, int]
"""The next offset to read of each SSP, by its text."""


class StreamOffsets(Protocol):
    """The questions of an order to its system."""

    def offsets(self, stream: str) -> Mapping[int, PartitionOffsets]:
        """See SystemAdmin."""

    def reachable_offsets(self, stream: str) -> Mapping[int, PartitionOffsets | None]:
        """See SystemAdmin."""


class ReadOrder:
    """Bootstrap streams before others, and records of grown streams in the order of their keys.

    `bootstrap` streams are read to the end they had at the start before any other stream moves. `later` names, for an
    SSP, the lower partitions of its stream in the same task: nothing of it is read before these have come to the end
    they had when reading began, as long as it stands at its own beginning. So keys keep their order on systems that
    do not remember where the keys of an added partition were before.
    """

    def __init__(
        self,
        ssps: Iterable[str],
        bootstrap: Sequence[str],
        later: Mapping[str, Sequence[str]],
        systems: Callable[[str], StreamOffsets],
    ) -> None:
        """`systems` gives a system by its name."""
        self._ssps = {text: SystemStreamPartition.parse(text) for text in ssps}
        self._later = later
        self._systems = systems
        self._first = {text for text, ssp in self._ssps.items() if str(ssp.system_stream) in bootstrap}
        self._first_ends: Positions | None = None
        self._origins: dict[str, list[tuple[str, int]]] | None = None

    def waits(self, positions: Positions) -> frozenset[str]:
        """The SSPs of which nothing may be read yet.

        Raises:
            StreamUnreachable: no broker answers for a partition that others have to wait for.
        """
        if not self._first and self._origins == {}:
            return frozenset()
        waits = self._behind_bootstrap(positions) | self._behind_origins(positions)
        return frozenset(waits)

    def _behind_bootstrap(self, positions: Positions) -> set[str]:
        if not self._first:
            return set()
        if self._first_ends is None:
            ends = ends_of(self._held(self._first, all_of_it=True))
            self._first_ends = {ssp: ends[ssp] for ssp in self._first}
        if any(positions[ssp] < end for ssp, end in self._first_ends.items()):
            return self._ssps.keys() - self._first
        self._first = set()
        return set()

    def _behind_origins(self, positions: Positions) -> set[str]:
        """The partitions that were added, until the records that their keys left elsewhere before are read."""
        if self._origins is None:
            self._origins = self._find_origins(positions)
        origins = self._origins

        def must_wait(ssp: str) -> bool:
            return any(
                positions.get(origin, end) < end or must_wait(origin) for origin, end in origins.get(ssp, ())
            )

        waits = {ssp for ssp in origins if must_wait(ssp)}
        if not waits:
            self._origins = {}
        return waits

    def _find_origins(self, positions: Positions) -> dict[str, list[tuple[str, int]]]:
        """Where the keys of each added partition that we read were before, and up to which offset there."""
        held = self._held(self._ssps, all_of_it=bool(self._later))
        ends = ends_of(held)
        found: dict[str, list[tuple[str, int]]] = {}
        for text, ssp in self._ssps.items():
            mine = held[text]
            if mine is None:
                continue
            if mine.origin is not None:
                before = SystemStreamPartition(ssp.system, ssp.stream, mine.origin.partition)
                found[text] = [(str(before), int(mine.origin.upcoming))]
            elif positions[text] <= int(mine.upcoming if mine.oldest is None else mine.oldest):
                found[text] = [(lower, ends[lower]) for lower in self._later.get(text, ())]
        return found

    def _held(self, ssps: Iterable[str], *, all_of_it: bool) -> dict[str, PartitionOffsets | None]:
        held = {}
        for stream in {self._ssps[text].system_stream for text in ssps}:
            system = self._systems(stream.system)
            ask = system.offsets if all_of_it else system.reachable_offsets
            held[stream] = ask(stream.stream)
        return {text: held[self._ssps[text].system_stream][self._ssps[text].partition] for text in ssps}


def ends_of(held: Mapping[str, PartitionOffsets | None]) -> dict[str, int]:
    """The upcoming offset of each partition that can be reached."""
    return {ssp: int(offsets.upcoming) for ssp, offsets in held.items() if offsets is not None}
