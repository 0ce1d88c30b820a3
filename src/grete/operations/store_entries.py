"""What the stores of StreamTasks have at their last commits, from their changelogs: whoever keeps the stores, and
whether the job runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from grete.clock import Clock, SystemClock
from grete.errors import ConfigError
from grete.model.ids import TaskName
from grete.operations.job_handle import JobHandle
from grete.operations.stream_records import Decode, StreamRecord, first_offset, records_until, store_decoders
from grete.suggestions import or_one_of


class StoreEntry(NamedTuple):
    """An entry with the record that wrote it; key and value as the job's serdes read them, as JSON has them."""

    task: TaskName
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any


def text_of_key(key: Any) -> str:
    """A key as people write it: text as it is, else JSON."""
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False, default=str)


def store_entries(
    handle: JobHandle,
    store: str,
    wants: Callable[[str], bool],
    *,
    task: str | None = None,
    clock: Clock | None = None,
) -> Iterator[StoreEntry]:
    """The entries whose keys are wanted, as text, task by task and in the order of these texts.

    Reads the changelog from its beginning to its committed end, and holds what is wanted of one partition in memory.

    Raises:
        ConfigError: the job has no such store or task.
        GreteError: the changelog is not there, or its system does not answer.
    """
    settings = handle.settings
    if settings.job.is_pipeline:
        raise ConfigError(
            "the state of a DataFrame pipeline is Spark's own, in its lineage; see `grete checkpoint show`"
        )
    own = settings.known_store(store)
    partitions = {number: name for name, number in handle.changelog_mapping().items()}
    if task is not None and task not in partitions.values():
        raise ConfigError(f"the job has no task {task!r}{or_one_of(task, sorted(partitions.values()))}")
    decoders = store_decoders(store, settings)
    kept_since_ms = 0
    if own.ttl_ms is not None:
        kept_since_ms = (SystemClock() if clock is None else clock).wall_ms() - own.ttl_ms
    stream = own.changelog_stream(handle.job)
    with handle.system(settings.task.commit_system) as system:
        for partition, known in sorted(system.offsets(stream).items()):
            name = partitions.get(partition)
            if name is None or task not in (None, name):
                continue
            ends = first_offset(known), int(known.upcoming)
            records = records_until(system, stream, partition, *ends)
            last = _last_of_each(records, decoders.key, wants)
            for text in sorted(last):
                record = last[text]
                if record.timestamp_ms >= kept_since_ms:
                    key, value = _plain(decoders.key(record.key)), _plain(decoders.value(record.value))
                    yield StoreEntry(name, partition, record.offset, record.timestamp_ms, key, value)


def _plain(value: Any) -> Any:
    """As JSON has it; a time or a decimal number of Avro's as text."""
    return json.loads(json.dumps(value, default=str))


def _last_of_each(
    records: Iterator[StreamRecord], decode: Decode, wants: Callable[[str], bool]
) -> dict[str, StreamRecord]:
    """The last record of each key that is wanted and not deleted."""
    found: dict[str, StreamRecord] = {}
    for record in records:
        text = text_of_key(decode(record.key))
        if not wants(text):
            continue
        if record.value is None:
            found.pop(text, None)
        else:
            found[text] = record
    return found
