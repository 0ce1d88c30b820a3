"""What the stores of StreamTasks have at their last commits, from their changelogs: whoever keeps the stores, and
whether the job runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from grete.clock import Clock, SystemClock
from grete.config.settings import Settings
from grete.config.settings.stores import StoreSettings
from grete.errors import ConfigError
from grete.model.ids import TaskName
from grete.operations.job_handle import JobHandle
from grete.operations.store_lookup import last_between
from grete.operations.stream_records import (
    Decode,
    Decoders,
    StreamRecord,
    first_offset,
    records_until,
    store_decoders,
)
from grete.suggestions import or_one_of
from grete.systems.base import System
from grete.tasks.spec import StoreSpec
from grete.tasks.stores.looking import lacks_up_to
from grete.tasks.stores.paths import store_identity, store_path

_STRETCH = 20_000
"""Records: on Kafka 0.1 s."""


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
    decoders = store_decoders(store, handle.settings)
    for part in _parts(handle, store, task, clock):
        records = records_until(part.system, part.stream, part.partition, part.first, part.end)
        last = _last_of_each(records, decoders.key, wants)
        for text in sorted(last):
            if last[text].timestamp_ms >= part.kept_since_ms:
                yield entry_of(part.task, last[text], decoders)


def entries_of_key(
    handle: JobHandle, store: str, key: str, *, task: str | None = None, clock: Clock | None = None
) -> Iterator[StoreEntry]:
    """The entry of a key, as text, in the store of each task that has one.

    Reads changelogs from their ends until the key is found. Where the store's file is on this machine and has no such
    key, what came after it is enough.

    Raises:
        ConfigError, GreteError: see `store_entries`.
    """
    decoders, uids = store_decoders(store, handle.settings), dict[str, str]()
    for part in _parts(handle, store, task, clock):
        first = max(part.first, _lacks_up_to(handle, store, part, key, uids))
        record = last_of(part, first, lambda found: text_of_key(decoders.key(found)) == key)
        if record is not None and record.value is not None and record.timestamp_ms >= part.kept_since_ms:
            yield entry_of(part.task, record, decoders)


class Part(NamedTuple):
    """The changelog of a task's store, from `first` to before `end`; what is older than a time has expired."""

    system: System
    task: TaskName
    stream: str
    partition: int
    first: int
    end: int
    kept_since_ms: int


def store_of(settings: Settings, store: str) -> StoreSettings:
    """A store of a StreamTask's job.

    Raises:
        ConfigError: the job has none of this name, or is a pipeline.
    """
    if settings.job.is_pipeline:
        raise ConfigError(
            "the state of a DataFrame pipeline is Spark's own, in its lineage; see `grete checkpoint show`"
        )
    return settings.known_store(store)


def _parts(handle: JobHandle, store: str, task: str | None, clock: Clock | None) -> Iterator[Part]:
    settings = handle.settings
    own = store_of(settings, store)
    known = (
        handle.changelogs() if task is None else handle.changelog_mapping()
    )  # one that is gone, by its name
    partitions = {number: name for name, number in known.items()}
    if task is not None and task not in partitions.values():
        raise ConfigError(f"the job has no task {task!r}{or_one_of(task, sorted(partitions.values()))}")
    kept_since_ms = 0
    if own.ttl_ms is not None:
        kept_since_ms = (SystemClock() if clock is None else clock).wall_ms() - own.ttl_ms
    stream = own.changelog_stream(handle.job)
    with handle.system(settings.task.commit_system) as system:
        for partition, held in sorted(system.offsets(stream).items()):
            name = partitions.get(partition)
            if name is not None and task in (None, name):
                ends = first_offset(held), int(held.upcoming)
                yield Part(system, name, stream, partition, *ends, kept_since_ms)


def _lacks_up_to(handle: JobHandle, store: str, part: Part, key: str, uids: dict[str, str]) -> int:
    """See `lacks_up_to`. Only keys of the serde for texts are the same bytes wherever they were written.

    `uids` are those of changelogs that were asked for, which only a file on this machine needs.
    """
    own = handle.settings.store(store)
    serde = own.key_serde
    path = store_path(handle.state_directory / "stores", part.task, store)
    if serde is None or handle.settings.serde(serde).implementation != "string" or not path.exists():
        return 0
    if part.stream not in uids:
        uids[part.stream] = part.system.stream_uid(part.stream)
    spec = StoreSpec(store, part.stream, uids[part.stream], own.ttl_ms)
    found = lacks_up_to(path, store_identity(spec, part.partition), key.encode())
    return found if found <= part.end else 0


def last_of(part: Part, first: int, matches: Callable[[bytes | None], bool]) -> StreamRecord | None:
    """The last record that matches, from offset `first` on: looked for from the end, a stretch at a time."""
    end = part.end
    while end > first:
        start = max(first, end - _STRETCH)
        last = last_between(part.system, part.stream, part.partition, (start, end), matches)
        if last is not None:
            return last
        end = start
    return None


def entry_of(task: TaskName, record: StreamRecord, decoders: Decoders) -> StoreEntry:
    """The entry that a record wrote."""
    key, value = plain(decoders.key(record.key)), plain(decoders.value(record.value))
    return StoreEntry(task, record.partition, record.offset, record.timestamp_ms, key, value)


def plain(value: Any) -> Any:
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
