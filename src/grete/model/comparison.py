"""What two versions of a job have written into one of their outputs, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Number = int | float
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """An output of the original and the clone's: how many keys, or rows without keys, are the same in both.

    `examples` are some of those that are not. `sums` are those of each number in both, by its name. `only_own` and
    `only_other` are columns of a table that the other one has not: they are not compared.
    """

    output: str
    other: str
    records: int = 0
    other_records: int = 0
    same: int = 0
    differ: int = 0
    missing: int = 0
    more: int = 0
    examples: Sequence[str] = ()
    sums: Mapping[str, tuple[Number, Number]] = field(default_factory=dict)
    only_own: Sequence[str] = ()
    only_other: Sequence[str] = ()

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs; how often a key was written may."""
        return not (self.differ or self.missing or self.more or self.only_own or self.only_other)
