"""A system as an executor uses it: exact ranges to read, partitions to send to, changelogs to restore from.

Opened once in each Python worker, from the configuration alone: references to secrets are resolved there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from grete.model.ids import SystemStream
from grete.systems.partitioner import Partitioner

if TYPE_CHECKING:
    import pyarrow as pa

Change = tuple[bytes, bytes | None]
"""Key and value of a changelog record; None deletes."""


class Access(Protocol):
    """What the task runner needs of a system. Used by one thread."""

    def partition_count(self, stream: str) -> int:
        """How many partitions the stream has; may be remembered, since partitions are only ever added.

        Raises:
            StreamNotFound: no such stream.
        """

    def partitioner(self, stream: SystemStream) -> Partitioner:
        """What chooses the partition of a key that is sent to the stream."""

    def largest_record(self, stream: str) -> int:
        """How many bytes key and value of a record of the stream may have together.

        Raises:
            StreamNotFound: no such stream.
        """

    def pack(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps_ms: Sequence[int]
    ) -> bytes:
        """Records as they are kept and handed over."""

    def write(self, records: pa.RecordBatch) -> bytes:
        """Records that are columns already, as they are kept and handed over."""

    def unpack(self, data: bytes) -> Iterator[Change]:
        """(key, value) of packed changelog records."""

    def read(self, stream: str, partition: int, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """See System.read."""

    def changes(
        self, stream: str, partition: int, start: int, end: int, *, copied_ms: int = 0
    ) -> Iterator[Change]:
        """Changelog records with start <= offset < end, in order, for a copy of the state at `start` (0: empty).

        `copied_ms` is when the copy was known to be the state at `start`, by the wall clock of its machine.

        Raises:
            OffsetOutOfRange: they do not bring such a copy to the state at `end`; it must start again. This may
                show at the end only.
        """

    def now_ms(self) -> int:
        """Wall time, for record timestamps."""

    def close(self) -> None:
        """Release everything."""
