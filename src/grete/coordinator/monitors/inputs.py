"""Monitors of the inputs: partition counts (StreamPartitionCountMonitor) and input regexes (StreamRegexMonitor)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grete.config.rewriters import InputRegex
from grete.coordinator.monitors.findings import PartitionChange, PartitionsChanged, StreamsChanged
from grete.model.ids import SystemStream


class PartitionCountMonitor:
    """Compares partition counts with those that the job model was calculated from.

    Samza asks the systems for the first counts, so that a change between the job model and the monitor's start is
    never seen (its SAMZA-2684); here they are the job model's own.
    """

    def __init__(self, modelled: Mapping[SystemStream, int]) -> None:
        self._modelled = dict(modelled)
        self._reported: dict[SystemStream, int] = {}
        self.counts: Mapping[SystemStream, int] = self._modelled
        """The counts observed last, for metrics (Samza's gauge `<system>-<stream>-partitionCount`)."""

    def observe(self, facts: Mapping[SystemStream, int], now_s: float) -> tuple[PartitionsChanged, ...]:
        """Judge the counts of now. A stream that is missing from them is left out, and counts as before."""
        self.counts = {**self.counts, **facts}
        changed = {s: n for s, n in facts.items() if n != self._modelled.get(s, n)}
        if changed == self._reported:
            return ()
        self._reported = changed
        changes = [PartitionChange(s, self._modelled[s], n) for s, n in sorted(changed.items())]
        if not changes:
            return ()  # a stream that had shrunk is whole again
        grown = tuple(c for c in changes if c.now > c.before)
        return (PartitionsChanged(grown, tuple(c for c in changes if c.now < c.before)),)


class InputRegexMonitor:
    """Looks for streams that an input regex matches and that are no inputs yet."""

    def __init__(self, regexes: Iterable[InputRegex], inputs: Iterable[SystemStream]) -> None:
        self.regexes = tuple(regexes)
        self._inputs = frozenset(inputs)
        self._reported: frozenset[SystemStream] = frozenset()

    @property
    def new_streams(self) -> dict[str, int]:
        """How many new streams each system has, for metrics (Samza's gauge `<system>-new-input-streams`)."""
        counts = {regex.system: 0 for regex in self.regexes}
        for stream in self._reported:
            counts[stream.system] += 1
        return counts

    def observe(self, facts: Mapping[str, Iterable[str]], now_s: float) -> tuple[StreamsChanged, ...]:
        """Judge the names of the streams that each system has now. A system that is missing has none."""
        new = frozenset(
            SystemStream(regex.system, name)
            for regex in self.regexes
            for name in facts.get(regex.system, ())
            if regex.chooses(name)
        )
        new -= self._inputs
        if new == self._reported:
            return ()
        grew = not new <= self._reported
        self._reported = new
        return (StreamsChanged(tuple(sorted(new))),) if grew else ()
