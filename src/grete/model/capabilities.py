"""What a kind of system can do. Code asks for a capability, never for a system's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The differences between systems that others have to know. The defaults are those of the simplest system.

    `commits_on_executors`: a batch of StreamTasks is committed where its tasks ran, in `System.transactions`.
    `has_gaps`: offsets of a partition are left out though no record was removed, as by marks of transactions.
    """

    commits_on_executors: bool = False
    has_gaps: bool = False
