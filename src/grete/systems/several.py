"""What a share reads from several systems, as one input."""

from __future__ import annotations

from collections.abc import Mapping

from grete.clock import Clock
from grete.systems.inputs import Arrived, Inputs, Wanted

_TURNS_S = (0.002, 0.02)
"""How long one system may wake the waiting share before the next has its turn: longer while nothing comes."""


class SeveralInputs(Inputs):
    """Each system's own reader, asked in turns. Used by one thread."""

    def __init__(self, readers: Mapping[str, Inputs], clock: Clock) -> None:
        """`readers` by the names of their systems; they are closed with this."""
        self._readers = dict(readers)
        self._clock = clock
        self._names = sorted(readers)
        self._turn = 0
        self._turn_s = _TURNS_S[0]
        self._asked: tuple[Wanted, dict[str, Wanted]] | None = None

    def poll(self, wanted: Wanted, records: int, wait_s: float) -> list[Arrived]:
        """See Inputs. What is ready in any of them comes first; nobody waits in one while another has records."""
        of_systems = self._divided(wanted)
        names = [name for name in self._in_turn() if name in of_systems]
        found: list[Arrived] = []
        for place, name in enumerate(names):
            left = records - sum(one.records.num_rows for one in found if one.records is not None)
            found += self._readers[name].poll(of_systems[name], max(1, left // (len(names) - place)), 0.0)
        if found or not names:
            self._turn_s = _TURNS_S[0]
            return found
        until_s, place = self._clock.monotonic_s() + wait_s, 0
        while (left_s := until_s - self._clock.monotonic_s()) > 0:
            name = names[place % len(names)]
            if found := self._readers[name].poll(of_systems[name], records, min(left_s, self._turn_s)):
                self._turn_s = _TURNS_S[0]
                return found
            place += 1
            self._turn_s = min(1.5 * self._turn_s, _TURNS_S[1])
        return []

    def _in_turn(self) -> list[str]:
        self._turn = (self._turn + 1) % len(self._names)
        return self._names[self._turn :] + self._names[: self._turn]

    def _divided(self, wanted: Wanted) -> dict[str, Wanted]:
        """The wanted partitions of each system; the same objects as long as the same is wanted."""
        if self._asked is None or self._asked[0] is not wanted:
            names = {ssp.system for ssp in wanted}
            divided: dict[str, Wanted] = {
                name: {ssp: span for ssp, span in wanted.items() if ssp.system == name} for name in names
            }
            self._asked = wanted, divided
        return self._asked[1]

    def close(self) -> None:
        """See Inputs."""
        for reader in self._readers.values():
            reader.close()
