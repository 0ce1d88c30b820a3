"""Bringing a store back: changelog records that undo what came after a point.

A changelog only grows, so a store goes back by new records: each key that changed after the point gets the value it
had there, or a tombstone. They are appended in the transaction of the checkpoint that they belong to. Every copy of
the store catches up with them as with any other change, and compaction stays safe. Where entries expire, the records
have the times of those whose values they bring back, and what retention has removed has expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from grete.application.expiry import unstamped
from grete.errors import JobError, OffsetOutOfRange
from grete.systems.base import Change, System
from grete.systems.commit_group import SegmentWrite

_SEGMENT_RECORDS = 50_000


@dataclass(frozen=True, slots=True)
class Changelog:
    """One partition of a store's changelog, whose entries expire or not."""

    system: System
    stream: str
    partition: int
    is_expiring: bool = False

    @property
    def end(self) -> int:
        """The next offset to be written."""
        return int(self.system.offsets(self.stream)[self.partition].upcoming)

    def changes(self, start: int, end: int) -> Iterator[Change]:
        """Records with start <= offset < end, in order."""
        from grete.systems.records import changes_of

        for _, batch in self.system.read(self.stream, self.partition, start, end):
            yield from changes_of(batch, has_times=self.is_expiring)

    @property
    def _oldest(self) -> int:
        """Where what is left begins; the end, where nothing is."""
        offsets = self.system.offsets(self.stream)[self.partition]
        return int(offsets.upcoming if offsets.oldest is None else offsets.oldest)

    def check_whole(self, position: int) -> None:
        """Whether every record below `position` is still there: only then is the state at it known.

        Raises:
            JobError: compaction or retention has removed some; returns how many.
        """
        start = self._oldest if self.is_expiring else 0
        if position <= start:
            return  # no state: nothing has to be there to know it
        horizon = self.system.intact_from(self.stream, self.partition)
        if position >= horizon:
            return  # what compaction drops below its horizon makes no difference from there on
        try:
            batches = self.system.read(self.stream, self.partition, start, position)
            found = sum(batch.num_rows for _, batch in batches)
        except OffsetOutOfRange as error:
            raise JobError(f"the changelog does not go back to its start: {error}") from error
        if found == position - start:
            return  # nothing is missing, so nothing was removed
        removed = (
            f"some of the records that make up the state at offset {position} may have been removed by compaction"
            if self.system.capabilities.has_gaps  # a transaction's mark takes an offset, too
            else f"{position - start - found} of the {position - start} records that make up the state were removed "
            f"by compaction"
        )
        raise JobError(
            f"changelog {self.stream} partition {self.partition}: {removed}; it can be brought back to where it was "
            f"at offset {horizon} or later, or to nothing"
        )

    def back_to_nothing(self) -> dict[bytes, bytes | None]:
        """Changes that delete every key there is."""
        living: dict[bytes, bytes | None] = {}
        for key, value in self.changes(self._oldest, self.end):
            if value is None:
                living.pop(key, None)
            else:
                living[key] = None
        return living

    def back_to(self, position: int) -> dict[bytes, bytes | None]:
        """Changes that bring the state of now to what it was at `position`. Memory: the keys that changed since.

        Raises:
            JobError: see `check_whole`; or the changelog is shorter than that.
        """
        if position > self.end:
            raise JobError(
                f"changelog {self.stream} partition {self.partition} ends at {self.end}, before {position}"
            )
        if position == 0:
            return self.back_to_nothing()
        self.check_whole(position)
        return self.undone_after(position)

    def undone_after(self, position: int) -> dict[bytes, bytes | None]:
        """As `back_to`, taking what is there below `position` for all there was."""
        oldest = self._oldest
        if self.is_expiring:
            position = max(position, oldest)
        is_living: dict[bytes, bool] = {}
        for key, value in self.changes(position, self.end):
            is_living[key] = value is not None
        if not is_living:
            return {}
        then: dict[bytes, bytes | None] = {}
        for key, value in self.changes(min(position, oldest), position):
            if key in is_living:
                then[key] = value
        return {
            key: then.get(key) for key, living in is_living.items() if living or then.get(key) is not None
        }

    def segments(self, changes: dict[bytes, bytes | None], now_ms: int) -> Iterable[SegmentWrite]:
        """The changes as records to append."""
        from grete.systems.records import pack

        keys = list(changes)
        for start in range(0, len(keys), _SEGMENT_RECORDS):
            part = keys[start : start + _SEGMENT_RECORDS]
            values, times_ms = [changes[key] for key in part], [now_ms] * len(part)
            if self.is_expiring:
                values, times_ms = unstamped(values, now_ms)
            data = pack(part, values, times_ms)
            yield SegmentWrite(self.stream, self.partition, len(part), data)
