"""What the page of streams shows: records of a partition, and a key of a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from grete.checkpoint.rewind_target import startpoint_target
from grete.errors import ConfigError, GreteError, StreamError
from grete.model.ids import SystemStream, SystemStreamPartition
from grete.operations.job_handle import JobHandle
from grete.operations.store_lookup import look_up
from grete.operations.stream_records import (
    Decode,
    Decoders,
    decoded,
    first_offset,
    read_records,
    store_decoders,
    stream_decoders,
)
from grete.text_logs import printable

Values = dict[str, Any]
Query = Mapping[str, str]
_RECORDS, _LONGEST_RECORD = 50, 4_000
_READ_AT_MOST = 20_000
_DECODED_AT_MOST = 64 << 10
"""Bytes: a record of 10 MB is not decoded to show its beginning."""


def shown(data: bytes | None, decode: Decode = decoded) -> str:
    """Bytes as text, cut where they are long."""
    if data is None:
        return ""
    found = decode(data) if len(data) <= _DECODED_AT_MOST else decoded(data[: 2 * _LONGEST_RECORD])
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
    is_cut = len(text) > _LONGEST_RECORD or len(data) > _DECODED_AT_MOST
    return printable(text[:_LONGEST_RECORD]) + (f" … ({len(data):,} bytes)" if is_cut else "")


def streams(handle: JobHandle, query: Query) -> Values:
    """The streams of a job, and records of a partition from somewhere; its stores, and what one has of a key."""
    names, decoders = _streams(handle)
    chosen = query.get("stream") or next(iter(sorted(names)), "")
    found: Values = {
        "names": sorted(names.items()),
        "chosen": chosen,
        "problem": "",
        "records": [],
        "offsets": None,
        "stores": handle.settings.store_names,
        "store_problem": "",
        "looked": None,
    }
    if query.get("store") in handle.settings.store_names:
        try:
            found["looked"] = _looked_up(handle, query)
        except GreteError as error:
            found["store_problem"] = str(error)
        return found
    if chosen not in names:  # a name of somebody's is no reason to ask a broker
        return found
    try:
        return found | _records(handle, SystemStream.parse(chosen), decoders(chosen), query)
    except GreteError as error:
        return found | {"problem": str(error)}


def _streams(handle: JobHandle) -> tuple[dict[str, str], Callable[[str], Decoders]]:
    """What each stream is to the job, by name, and how its records are shown."""
    settings = handle.settings
    names = {str(one): "input" for one in settings.task.all_inputs}
    names |= {str(one): "output" for one in settings.task.own_outputs}
    stores = {}
    for store in map(settings.store, settings.store_names):
        name = f"{settings.task.commit_system}.{store.changelog_stream(handle.job)}"
        names.setdefault(name, f"changelog of {store.name}")
        stores[name] = store.name

    def decoders(name: str) -> Decoders:
        if name in stores:
            return store_decoders(stores[name], settings)
        return stream_decoders(SystemStream.parse(name), settings)

    return names, decoders


def _looked_up(handle: JobHandle, query: Query) -> Values:
    store, text = query["store"], query.get("key", "")
    decoders = store_decoders(store, handle.settings)
    back = _number(query, "back", 0)
    found = look_up(handle, store, lambda key: shown(key, decoders.key) == text, back)
    return {
        "store": store,
        "key": text,
        "entries": [
            {
                "partition": one.partition,
                "task": found.tasks.get(one.partition, ""),
                "offset": one.offset,
                "at_ms": one.timestamp_ms,
                "value": None if one.value is None else shown(one.value, decoders.value),
            }
            for one in found.entries
        ],
        "read": found.read,
        "older": found.older,
    }


def _records(handle: JobHandle, name: SystemStream, decoders: Decoders, query: Query) -> Values:
    text, place = query.get("search", ""), query.get("at", "")
    with handle.system(name.system) as system:
        offsets = system.offsets(name.stream)
        if not offsets:
            raise StreamError(f"{name} has no partition")
        partition = _number(query, "partition", 0)
        if partition not in offsets:
            raise ConfigError(f"{name} has partitions 0 to {max(offsets)}, not {partition}")
        oldest, upcoming = first_offset(offsets[partition]), int(offsets[partition].upcoming)
        start = max(oldest, upcoming - _RECORDS)
        if place.isdecimal():
            start = min(max(oldest, _number(query, "at", 0)), upcoming)
        elif place:
            start = int(
                system.offset_at(SystemStreamPartition(name.system, name.stream, partition), _time_ms(place))
            )
        found: list[Values] = []
        last = start
        for record in read_records(system, name.stream, partition, start):
            last = record.offset + 1
            key, value = shown(record.key, decoders.key), shown(record.value, decoders.value)
            if not text or text in key or text in value:
                found.append(
                    {"offset": record.offset, "at_ms": record.timestamp_ms, "key": key, "value": value}
                )
            if len(found) >= _RECORDS or last - start >= _READ_AT_MOST:
                break
    return {
        "records": found,
        "partition": partition,
        "partitions": sorted(offsets),
        "offsets": {"oldest": oldest, "upcoming": upcoming, "from": start, "next": last},
    }


def _time_ms(text: str) -> int:
    """A moment as the target of a rewind has it: ISO 8601, in UTC without a zone."""
    try:
        return startpoint_target(f"timestamp:{text}").timestamp_ms or 0
    except GreteError as error:
        raise ConfigError(
            f"{text[:50]!r} is neither an offset nor a time, such as 2026-03-01T02:30:00"
        ) from error


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name) or str(default)
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise ConfigError(f"{name} is a number, not {text[:50]!r}")
    return int(text)
