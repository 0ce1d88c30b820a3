"""A note on one key of a Samza configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """The outcome for a key. Only `BLOCKS` keeps the job from running once its code is ported."""

    AS_IS = "as it is"
    MAPPED = "becomes"
    PORT = "to port"
    NO_EFFECT = "no effect"
    BLOCKS = "will not work"


class NoteSection(StrEnum):
    """The subject of a key, in the order of the report."""

    APPLICATION = "application"
    STREAMS = "inputs, outputs, serdes"
    PARTITIONER = "partitioner"
    STORES = "stores and changelogs"
    CHECKPOINTS = "checkpoints"
    COORDINATION = "coordination"
    CLUSTER = "cluster manager"
    METRICS = "metrics and logs"
    SECURITY = "security"
    OTHER = "the application's own keys"


@dataclass(frozen=True, slots=True)
class Note:
    """The outcome for `key`; a key that the configuration lacks can have one too, if that means something.

    `changes` is what `--write` does about it: key -> new value, None to leave it out.
    """

    section: NoteSection
    key: str
    outcome: Outcome
    says: str = ""
    way_out: str = ""
    changes: Mapping[str, str | None] = field(default_factory=dict)


Notes = Iterator[Note]


def ordered(notes: Iterable[Note]) -> list[Note]:
    """By section, what needs work first, then by key."""
    sections, outcomes = list(NoteSection), list(Outcome)
    return sorted(notes, key=lambda n: (sections.index(n.section), -outcomes.index(n.outcome), n.key))
