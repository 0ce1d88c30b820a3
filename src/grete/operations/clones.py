"""A second version of a job beside the first: the outputs of both compared, and the swap.

A clone reads what its original reads, has state and checkpoints of its own, and writes into streams whose names end
otherwise. To swap them both are run to the same offsets, the higher of both in each partition; then the original is
marked as succeeded, and the clone writes the original's streams from there on. So each input record has its outputs
in these streams once, from the one or from the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from grete.config.key_tables.job import PROMOTED_OVER, SUCCEEDED_BY
from grete.config.key_tables.task import OUTPUTS_SUFFIX
from grete.errors import JobError
from grete.metadata.history import History
from grete.metadata.job_state import read_origin
from grete.model.ids import JobId
from grete.operations.configuration import set_config
from grete.operations.job_handle import JobHandle, open_job
from grete.operations.meeting import meeting
from grete.operations.orphans import standing_still
from grete.operations.stream_records import oldest_offset, records_until
from grete.systems.base import System

Number = int | float
_WHOLE = "value"
"""The name of a value that is a number itself."""


@dataclass(slots=True)
class Compared:
    """The last values of the keys in an output of both, and how many records are in each."""

    stream: str
    other: str
    records: int = 0
    other_records: int = 0
    same: int = 0
    differ: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)
    sums: Mapping[str, tuple[Number, Number]] = field(default_factory=dict)
    """Of each number in these last values, as far as they are JSON: by its name, in both."""

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs; how often a key was written may."""
        return not (self.differ or self.missing or self.more)


def compare(original: JobHandle, clone: JobHandle) -> Iterator[Compared]:
    """Each declared output of the original with the clone's. Holds the last value of each key in memory.

    Records without a key count as one key for each value. Of a clone that began with the original's checkpoints only
    what both have written since.
    """
    before, after = original.settings, clone.settings
    origin = read_origin(clone.stream)
    ends = origin.ends if origin is not None and origin.of == original.job.shown else {}
    for stream in before.task.outputs:
        own, other = (one.task.written_as(stream) for one in (before, after))
        with original.system(stream.system) as system:
            rows, others = _last(system, own.stream, ends.get(str(own), {})), _last(system, other.stream, {})
        made = Compared(str(own), str(other), rows[1], others[1])
        for key, value in rows[0].items():
            if key not in others[0]:
                made.missing.append(_shown(key))
            elif others[0][key] != value:
                made.differ.append(_shown(key))
            else:
                made.same += 1
        made.more = [_shown(key) for key in others[0] if key not in rows[0]]
        own_sums, other_sums = _sums(rows[0].values()), _sums(others[0].values())
        names = sorted({*own_sums, *other_sums})
        made.sums = {name: (own_sums.get(name, 0), other_sums.get(name, 0)) for name in names}
        yield made


def _last(system: System, stream: str, since: Mapping[int, int]) -> tuple[dict[bytes, bytes | None], int]:
    found: dict[bytes, bytes | None] = {}
    count = 0
    for partition, offsets in sorted(system.offsets(stream).items()):
        start = max(oldest_offset(system, stream, partition), since.get(partition, 0))
        for record in records_until(system, stream, partition, start, int(offsets.upcoming)):
            found[record.value or b"" if record.key is None else record.key] = record.value
            count += 1
    return found, count


def _sums(values: Iterable[bytes | None]) -> dict[str, Number]:
    numbers: dict[str, list[Number]] = {}
    for value in values:
        try:
            read = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            continue
        for name, one in read.items() if isinstance(read, dict) else [(_WHOLE, read)]:
            if isinstance(one, int | float) and not isinstance(one, bool):
                numbers.setdefault(name, []).append(one)
    return {name: _sum(found) for name, found in numbers.items()}


def _sum(numbers: Sequence[Number]) -> Number:
    """The same in whatever order they come."""
    return sum(numbers) if all(isinstance(one, int) for one in numbers) else math.fsum(numbers)


def _shown(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def swap(original: JobId, clone: JobId) -> None:
    """Let the clone write the original's streams, and the original not run any more. Both stand at the same offsets.

    First the original: whatever ends this in between, never do both write. It may be asked for again.

    Raises:
        JobError: one is running, or they do not stand at the same offsets.
        ConfigError: see `set_config`.
    """
    with open_job(original) as first, open_job(clone) as second, standing_still(first, second):
        if meeting(first, second).behind:
            raise JobError(f"{original.shown} and {clone.shown} do not stand at the same offsets")
        set_config(first, {SUCCEEDED_BY.name: clone.shown}, reason=f"{clone.shown} goes on where it stands")
        History(first.stream).append("succeeded", by=clone.shown)
        own = {OUTPUTS_SUFFIX.name: first.settings.task.outputs_suffix, PROMOTED_OVER.name: original.shown}
        set_config(second, own, reason=f"it goes on where {original.shown} ended, and writes its streams")
        History(second.stream).append("promoted", over=original.shown)
