"""Monitors of the inputs: partition counts (StreamPartitionCountMonitor) and input regexes (StreamRegexMonitor)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grete.config import aliases
from grete.config.java_regex import compile_java
from grete.config.rewriters import may_be_chosen, rewriter_names
from grete.config.settings import Settings
from grete.coordinator.monitors.findings import PartitionChange, PartitionsChanged, StreamsChanged
from grete.model.ids import SystemStream


class PartitionCountMonitor:
    """Compares partition counts with those that the job model was calculated from.

    Samza asks the systems for the first counts, so that a change between the job model and the monitor's start is
    never seen (its SAMZA-2684); here they are the job model's own.
    """

    def __init__(self, modelled: Mapping[SystemStream, int]) -> None:
        self._modelled = dict(modelled)
        self._told: dict[SystemStream, int] = {}
        self.counts: Mapping[SystemStream, int] = self._modelled
        """The counts observed last, for metrics (Samza's gauge `<system>-<stream>-partitionCount`)."""

    def observe(self, facts: Mapping[SystemStream, int], now_s: float) -> tuple[PartitionsChanged, ...]:
        """Judge the counts of now. A stream that is missing from them is left out, and counts as before."""
        self.counts = {**self.counts, **facts}
        changed = {s: n for s, n in facts.items() if n != self._modelled.get(s, n)}
        if changed == self._told:
            return ()
        self._told = changed
        changes = [PartitionChange(s, self._modelled[s], n) for s, n in sorted(changed.items())]
        if not changes:
            return ()  # a stream that had shrunk is whole again
        grown = tuple(c for c in changes if c.now > c.before)
        return (PartitionsChanged(grown, tuple(c for c in changes if c.now < c.before)),)


@dataclass(frozen=True, slots=True)
class InputRegex:
    """A system and the pattern by which a rewriter chooses its streams; the whole name must match.

    `left_out` are streams that the job writes itself.
    """

    system: str
    pattern: re.Pattern[str]
    left_out: frozenset[str] = frozenset()

    def chooses(self, name: str) -> bool:
        """Whether a stream of the system becomes an input."""
        return may_be_chosen(name, self.pattern, self.left_out)


def input_regexes(config: Mapping[str, str]) -> list[InputRegex]:
    """The regexes of the configuration's `regex-input` rewriters, Samza's `job.config.rewriter.<name>.regex`.

    Raises:
        ConfigError: one of them is no regular expression.
    """
    found = []
    for name in rewriter_names(config):
        prefix = f"job.config.rewriter.{name}."
        chosen = aliases.canonical(aliases.REWRITERS, config.get(f"{prefix}class", ""))
        if chosen == "regex-input" and f"{prefix}regex" in config and f"{prefix}system" in config:
            pattern = compile_java(config[f"{prefix}regex"], used_by=f"{prefix}regex")
            system = config[f"{prefix}system"]
            found.append(InputRegex(system, pattern, frozenset(Settings.of(config).own_streams(system))))
    return found


class InputRegexMonitor:
    """Looks for streams that an input regex matches and that are no inputs yet."""

    def __init__(self, regexes: Iterable[InputRegex], inputs: Iterable[SystemStream]) -> None:
        self.regexes = tuple(regexes)
        self._inputs = frozenset(inputs)
        self._told: frozenset[SystemStream] = frozenset()

    @property
    def new_streams(self) -> dict[str, int]:
        """How many new streams each system has, for metrics (Samza's gauge `<system>-new-input-streams`)."""
        counts = {regex.system: 0 for regex in self.regexes}
        for stream in self._told:
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
        if new == self._told:
            return ()
        grew = not new <= self._told
        self._told = new
        return (StreamsChanged(tuple(sorted(new))),) if grew else ()
