"""Follows each aircraft from flight to flight: was this departure late because the aircraft came in late?

A flight is late when it departs or arrives 15 minutes or more after schedule. A late departure is *inherited* when
the aircraft's previous flight in the data arrived late, at most 24 hours before. Inherited delays form a chain.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import grete

LATE_MIN = 15
INHERITED_WITHIN_H = 24


class InheritedDelays(grete.StreamTask):
    """Writes one record per flight to `local.inherited-delays`."""

    def init(self, context: grete.TaskContext) -> None:
        self._aircraft = context.store("aircraft")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        flight, tail = envelope.message, envelope.key
        if not tail:
            return  # 2,512 flights have no tail number: nobody knows which aircraft it was
        previous = self._aircraft.get(tail)
        state = follow(previous, flight)
        self._aircraft.put(tail, state)
        collector.send(
            "local.inherited-delays",
            {"tailnum": tail, "flight": flight["carrier"] + str(flight["flight"]), **state},
            key=tail,
        )


def follow(previous: dict[str, Any] | None, flight: dict[str, Any]) -> dict[str, Any]:
    """The aircraft's state after a flight; pure, so that it can be tested and checked without any stream."""
    scheduled = flight["scheduled"]
    flights = 1 if previous is None else previous["flights"] + 1
    if flight["dep_delay"] is None:  # cancelled: the aircraft did not move, whatever it carried it carries on
        kept = previous or {"arr_delay": None, "chain": 0, "chain_min": 0, "chain_from": None, "last": None}
        return {**kept, "flights": flights, "inherited": False, "cancelled": True}
    late = flight["dep_delay"] >= LATE_MIN
    inherited = late and previous is not None and _came_in_late(previous, scheduled)
    chain = (previous["chain"] + 1 if previous and inherited else 1) if late else 0
    return {
        "flights": flights,
        "arr_delay": flight["arr_delay"],
        "last": scheduled,
        "inherited": inherited,
        "cancelled": False,
        "chain": chain,
        "chain_min": (previous["chain_min"] if previous and inherited else 0)
        + (flight["dep_delay"] if late else 0),
        "chain_from": (previous["chain_from"] if previous and inherited else scheduled) if late else None,
    }


def _came_in_late(previous: dict[str, Any], scheduled: str) -> bool:
    if previous["arr_delay"] is None or previous["arr_delay"] < LATE_MIN or previous["last"] is None:
        return False
    gap = datetime.fromisoformat(scheduled) - datetime.fromisoformat(previous["last"])
    return gap.total_seconds() <= INHERITED_WITHIN_H * 3600
