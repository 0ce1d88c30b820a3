"""What a job and its clone have written: streams by the last value of each key, tables by their rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import orjson

from grete.errors import MissingExtra
from grete.metadata.job_state import CloneOrigin, read_origin
from grete.model.comparison import EXAMPLES, Compared, Number
from grete.operations.job_handle import JobHandle
from grete.operations.stream_records import oldest_offset, records_until
from grete.systems.base import System

_WHOLE = "value"
"""The name of a value that is a number itself."""
Offsets = Mapping[int, int]
_NONE: Offsets = {}


def compare_streams(original: JobHandle, clone: JobHandle) -> Iterator[Compared]:
    """Each declared output of the original with the clone's. Holds the last value of each key in memory.

    Records without a key count as one key for each value. Of a clone that began with the original's checkpoints only
    what both have written since. Where the original ran then, what it wrote while they were read may be of before:
    a key that it wrote only then is not missing.
    """
    before, after = original.settings, clone.settings
    origin = _origin(original, clone) or CloneOrigin("")
    for stream in before.task.outputs:
        own, other = (one.task.written_as(stream) for one in (before, after))
        with original.system(stream.system) as system:
            ends = (found.get(str(own), {}) for found in (origin.ends, origin.ends_after))
            rows, records, of_before = _last(system, own.stream, *ends)
            others, other_records, _ = _last(system, other.stream)
        common = rows.keys() & others.keys()
        differ = [key for key in rows if key in common and rows[key] != others[key]]
        missing = [key for key in rows if key not in common and key not in of_before]
        more = [key for key in others if key not in common]
        yield Compared(
            str(own),
            str(other),
            records=records,
            other_records=other_records,
            same=len(common) - len(differ),
            differ=len(differ),
            missing=len(missing),
            more=len(more),
            examples=[
                key.decode("utf-8", "backslashreplace")
                for key in islice(chain(differ, missing, more), EXAMPLES)
            ],
            sums=_both(_sums(rows.values()), _sums(others.values())),
        )


def compare_tables(original: JobHandle, clone: JobHandle) -> Iterator[Compared]:
    """Each folder and table of a pipeline with its clone's, see `grete.spark.table_comparison`.

    Of a clone that began with the original's checkpoints nothing is missing: it has not what was written before.

    Raises:
        MissingExtra: without pyspark.
    """
    try:
        from grete.spark import table_comparison as spark
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "spark") from error
    has_all = _origin(original, clone) is None
    yield from spark.compare_tables(original.settings, clone.settings, has_all=has_all)


def _origin(original: JobHandle, clone: JobHandle) -> CloneOrigin | None:
    """Where the clone began with the original's checkpoints."""
    origin = read_origin(clone.stream)
    return origin if origin is not None and origin.of == original.job.shown else None


def _last(
    system: System, stream: str, since: Offsets = _NONE, settled: Offsets = _NONE
) -> tuple[dict[bytes, bytes | None], int, set[bytes]]:
    """The last values, of how many records, and the keys that were written last before `settled`."""
    found: dict[bytes, bytes | None] = {}
    before: set[bytes] = set()
    count = 0
    for partition, offsets in sorted(system.offsets(stream).items()):
        start = max(oldest_offset(system, stream, partition), since.get(partition, 0))
        for record in records_until(system, stream, partition, start, int(offsets.upcoming)):
            key = record.value or b"" if record.key is None else record.key
            found[key] = record.value
            count += 1
            if record.offset < settled.get(partition, 0):
                before.add(key)
            else:
                before.discard(key)
    return found, count, before


def _both(own: Mapping[str, Number], other: Mapping[str, Number]) -> dict[str, tuple[Number, Number]]:
    return {name: (own.get(name, 0), other.get(name, 0)) for name in sorted({*own, *other})}


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
