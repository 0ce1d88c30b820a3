"""Follows each aircraft from flight to flight: was this departure late because the aircraft had come in late?

A flight is late when it departs or arrives 15 minutes or more after schedule. A late departure is *inherited* when
the aircraft's flight before arrived late and was scheduled at most 24 hours earlier. Late departures in a row, each
inherited from the one before, are a chain. A cancelled flight did not move the aircraft: it is counted, no more.
"""

from __future__ import annotations

from typing import Any

import grete

LATE_MIN = 15
INHERITED_WITHIN_MS = 24 * 3_600_000

UNSEEN: dict[str, Any] = {
    "flights": 0,
    "cancelled": 0,
    "flown_ms": None,  # the last flight that took place: when it was scheduled, and how late it arrived
    "arr_delay": None,
    "inherited": False,
    "chain": 0,  # late departures in a row, all but the first inherited from the one before
    "chain_min": 0,
    "chain_from": None,
}


class InheritedDelays(grete.StreamTask):
    """Keeps a state per aircraft in the store `aircraft`; writes a record per flight to `local.inherited-delays`."""

    output = "local.inherited-delays"

    def init(self, context: grete.TaskContext) -> None:
        self._aircraft = context.store("aircraft")

    def process(
        self,
        envelope: grete.IncomingMessageEnvelope,
        collector: grete.MessageCollector,
        coordinator: grete.TaskCoordinator,
    ) -> None:
        flight, tail = envelope.message, envelope.key
        # Without a tail number the aircraft is unknown: such flights are passed on, not followed.
        before = (self._aircraft.get(tail) if tail else None) or UNSEEN
        after = follow(before, flight, envelope.timestamp_ms)
        if tail:
            self._aircraft.put(tail, after)
        collector.send(self.output, report(flight, after), key=tail)


def follow(before: dict[str, Any], flight: dict[str, Any], scheduled_ms: int) -> dict[str, Any]:
    """An aircraft's state after a flight. Pure, so that it can be tried without any stream."""
    after = {**before, "flights": before["flights"] + 1, "inherited": False}
    if flight["dep_time"] is None:
        after["cancelled"] += 1
        return after
    after |= {"flown_ms": scheduled_ms, "arr_delay": flight["arr_delay"]}
    late_min = flight["dep_delay"]
    if late_min < LATE_MIN:
        return {**after, "chain": 0, "chain_min": 0, "chain_from": None}
    after["inherited"] = came_in_late(before, scheduled_ms)
    if after["inherited"] and before["chain"]:
        return {**after, "chain": before["chain"] + 1, "chain_min": before["chain_min"] + late_min}
    return {**after, "chain": 1, "chain_min": late_min, "chain_from": departure(flight)}


def came_in_late(before: dict[str, Any], scheduled_ms: int) -> bool:
    """Whether the flight before was late enough, and recent enough, to hand its delay on."""
    return (
        before["arr_delay"] is not None
        and before["arr_delay"] >= LATE_MIN
        and scheduled_ms - before["flown_ms"] <= INHERITED_WITHIN_MS
    )


def departure(flight: dict[str, Any]) -> str:
    """The scheduled departure in New York's time."""
    return "{year}-{month:02}-{day:02} {hour:02}:{minute:02}".format_map(flight)


def report(flight: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The record that is sent on."""
    return {
        "flight": f"{flight['carrier']}{flight['flight']}",
        "from": flight["origin"],
        "to": flight["dest"],
        "departure": departure(flight),
        "cancelled": flight["dep_time"] is None,
        "dep_delay": flight["dep_delay"],
        "inherited": after["inherited"],
        "chain": after["chain"],
        "chain_min": after["chain_min"],
        "chain_from": after["chain_from"],
    }
