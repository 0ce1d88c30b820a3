"""Whether what a job writes is what its records should have made: each once, as it comes, in little memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator


class CountsInOrder:
    """A count of each key: 1, 2, 3 and so on. A rewind lets each key go back once to a count that it had."""

    def __init__(self) -> None:
        self._last: defaultdict[str, int] = defaultdict(int)
        self._went_back: dict[str, int] = {}
        self._rewinds = 0
        self.problems: list[str] = []

    def rewound(self) -> None:
        """The job was sent back, with its state."""
        self._rewinds += 1

    @property
    def went_back(self) -> int:
        """How many keys have gone back."""
        return len(self._went_back)

    def take(self, key: str, count: int) -> None:
        """The next output of a key."""
        last = self._last[key]
        if count != last + 1:
            if 0 < count <= last and self._went_back.get(key, 0) < self._rewinds:
                self._went_back[key] = self._rewinds
            else:
                self.problems.append(f"{key}: {count} follows {last}")
        self._last[key] = count

    def missing(self, expected: dict[str, int]) -> Iterator[str]:
        """Keys whose last count is not what so many records make."""
        for key, records in expected.items():
            if self._last[key] != records:
                yield f"{key}: the last count is {self._last[key]} of {records}"


class EachOnce:
    """Numbers from 0 of each key, in any order, each once."""

    went_back = 0

    def __init__(self) -> None:
        self._next: defaultdict[str, int] = defaultdict(int)
        self._ahead: defaultdict[str, set[int]] = defaultdict(set)
        self.problems: list[str] = []

    def take(self, key: str, number: int) -> None:
        """An output."""
        ahead = self._ahead[key]
        if number < self._next[key] or number in ahead:
            self.problems.append(f"{key}: {number} is there twice")
            return
        ahead.add(number)
        while self._next[key] in ahead:
            ahead.remove(self._next[key])
            self._next[key] += 1

    def missing(self, expected: dict[str, int]) -> Iterator[str]:
        """Keys of which not all of so many numbers came."""
        for key, records in expected.items():
            if self._next[key] != records:
                yield f"{key}: {self._next[key]} is missing of {records}"
