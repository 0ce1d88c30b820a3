"""Which configurations a coordinator stream has had, who wrote each, and what changed with it.

A generation of ours has how many keys it changed, in the same append. What else was written is a foreign program's:
it is a generation of its own, under its author's name, so that each author answers for his own changes and a
rollback goes back over one of them at a time.

Brokers compact a coordinator stream when they like, and drop values that were written again later. All generations of
ours have one key, so up to where a log is compacted at most one of them is left: the first in the log. From the
second on configurations are exact; the first one, and what other programs wrote before it, are only as far as nothing
is missing behind their records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from grete.config.rules.validate import validate
from grete.config.settings import Settings
from grete.errors import ConfigError, WireError
from grete.keyed_log.base import KeyedLog, Record
from grete.metadata.coordinator_stream import (
    GENERATION,
    KNOWN_VERSIONS,
    ConfigChange,
    CoordinatorStream,
    check_text,
)
from grete.metadata.job_state import AT_WORK, read_state
from grete.model.messages import SET_CONFIG, CoordinatorMessage, MessageOrigin
from grete.wire import coordinator_message as codec

_log = logging.getLogger(__name__)
SUBMITS = "job-runner"
"""The source of what a coordinator writes, as in Samza."""
_FOREIGN = "foreign"
_ONE_WRITE_MS = 1000
"""A foreign program writes key by key; what it wrote with no longer pause between is one change."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One configuration that the stream had: `number` is its offset, `config` all of it, `changes` what is new.

    One that is not `whole` may miss keys: the log was compacted since.
    """

    number: int
    message: CoordinatorMessage
    changes: tuple[ConfigChange, ...]
    config: Mapping[str, str]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class _Write:
    """A key's record, as `CoordinatorStream.config` reads it; `origin` is None of a deletion, and of garbage."""

    offset: int
    key: str
    new: str | None
    origin: MessageOrigin | None


def config_generations(log: KeyedLog) -> list[Generation]:
    """Every generation still in the log, oldest first, those of foreign programs among them."""
    config: dict[str, str] = {}
    waiting: list[_Write] = []
    found: list[Generation] = []
    known_from, last = 0, -1
    first: tuple[int, int] | None = None
    for record in log.read():
        if record.offset - last > log.stride:
            known_from = record.offset
        last = record.offset
        one = _decoded(record)
        if isinstance(one, _Write):
            waiting.append(one)
        elif one is not None:
            begin = _first_own(waiting, one)
            found += _foreign(waiting[:begin], config)
            own = waiting[begin:]
            if first is None:
                is_all_there = len(own) == _own_count(one)
                first = (len(found), own[0].offset if own and is_all_there else -1)
            found.append(Generation(record.offset, one, _fold(config, own), dict(config)))
            waiting = []
    found += _foreign(waiting, config)
    if known_from == 0:
        return found
    whole = _judged(found, known_from, *first or (len(found), -1))
    return [replace(one, whole=known) for one, known in zip(found, whole, strict=True)]


def _judged(found: Sequence[Generation], known_from: int, first: int, begin: int) -> list[bool]:
    """Whether each generation of a log that was compacted is whole: from the second of ours on they are.

    `first` is the index of the first of ours, whose records begin at `begin`, -1 when some are missing; from
    `known_from` on nothing is. What is written up to the second may have been the reason to drop a value of a key
    that seems new then.
    """
    later = (index for index, one in enumerate(found) if index > first and _is_ours(one))
    second = next(later, len(found))
    until = second
    if begin >= known_from:
        until = next((i for i in range(second, first, -1) if i < len(found) and _adds(found[i])), first)
    return [index >= min(until, second) for index in range(len(found))]


def _adds(generation: Generation) -> bool:
    return any(change.old is None for change in generation.changes)


def _is_ours(generation: Generation) -> bool:
    return generation.message.key != _FOREIGN


def startable_settings(stream: CoordinatorStream) -> Settings:
    """The stream's configuration; the last valid one before it when it is invalid, as a foreign program may leave it.

    Raises:
        ConfigError: neither it nor any before it is valid.
    """
    settings = stream.settings()
    try:
        validate(settings.raw)
    except ConfigError as error:
        known = reversed(config_generations(stream.log))
        good = next((one for one in known if one.whole and is_valid(one.config)), None)
        if good is None:
            raise
        _log.warning("the job starts with generation %s, not with the last one: %s", good.number, error)
        return Settings.of(good.config)
    return settings


def write_at_work(stream: CoordinatorStream, config: Mapping[str, str], run_id: str) -> None:
    """All containers of this run are at work with it. Durable on return, refused when a newer leader exists.

    On a full disk as well: it comes by itself, some time after a change was written, and would end the coordinator.
    """
    values, before = {"digest": _digest(config), "run-id": run_id}, stream.messages(AT_WORK).get("job")
    if before is None or before.values != values:
        stream.append([stream.entry(AT_WORK, "job", values)], urgent=True)


def config_before(stream: CoordinatorStream, config: Mapping[str, str]) -> Settings | None:
    """What the containers of a run that has not ended were last at work with, if not with `config`.

    None where nobody knows: no coordinator of this run has seen them at work, or the log was compacted since.
    """
    state, message = read_state(stream), stream.messages(AT_WORK).get("job")
    if state is None or state.is_terminal or message is None or message.values is None:
        return None
    known = message.values.get("digest", "")
    if message.values.get("run-id") != stream.run_id() or known == _digest(config):
        return None
    generations = reversed(config_generations(stream.log))
    before = (one.config for one in generations if one.whole and _digest(one.config) == known)
    return next(map(Settings.of, before), None)


def taken_back(stream: CoordinatorStream, submitted: Mapping[str, str]) -> list[str]:
    """The keys that were changed since the last submit, and that another one of the same configuration sets back."""
    last = stream.messages(GENERATION).get("current")
    if last is None or last.origin is None or last.origin.source == SUBMITS:
        return []
    submits = (one for one in reversed(config_generations(stream.log)) if _is_submit(one))
    base, now = next((one.config for one in submits), None), stream.config()
    if base is None:
        return []
    differs = {key for key in {*now, *submitted} if now.get(key) != submitted.get(key)}
    return sorted(key for key in differs if base.get(key) == submitted.get(key))


def _digest(config: Mapping[str, str]) -> str:
    from grete.config.rules.fingerprint import digest  # `grete status` does without

    return digest(sorted(config.items()))


def _is_submit(generation: Generation) -> bool:
    origin = generation.message.origin
    return origin is not None and origin.source == SUBMITS and _is_ours(generation)


def is_valid(config: Mapping[str, str]) -> bool:
    """Whether a job can be started with it, judged by it alone."""
    try:
        validate(config)
    except ConfigError:
        return False
    return True


def _decoded(record: Record) -> _Write | CoordinatorMessage | None:
    """A key's record or a generation's; None for every other one."""
    try:
        version, message_type, key = codec.decode_key(record.key)
        check_text(key)
    except WireError:
        return None
    kind = message_type.lower()
    if version not in KNOWN_VERSIONS or kind not in (SET_CONFIG, GENERATION):
        return None
    try:
        values, origin = codec.decode_value(record.value)
        check_text(*(value for value in (values or {}).values() if value is not None))
    except WireError:
        return _Write(record.offset, key, None, None) if kind == SET_CONFIG else None
    if kind == GENERATION:
        return CoordinatorMessage(GENERATION, key, values, origin)
    return _Write(record.offset, key, codec.single_value(SET_CONFIG, values), origin)


def _first_own(waiting: Sequence[_Write], generation: CoordinatorMessage) -> int:
    """Where the generation's own records begin: it counts them, and they are its author's."""
    begin, own = len(waiting), _own_count(generation)
    while own and begin and _is_by(waiting[begin - 1].origin, generation.origin):
        begin, own = begin - 1, own - 1
    return begin


def _own_count(generation: CoordinatorMessage) -> int:
    text = (generation.values or {}).get("changed", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _is_by(origin: MessageOrigin | None, author: MessageOrigin | None) -> bool:
    return origin is None or (author is not None and _author(origin) == _author(author))


def _author(origin: MessageOrigin) -> tuple[str, str, str]:
    return origin.source, origin.host, origin.username


def _foreign(writes: Sequence[_Write], config: dict[str, str]) -> Iterator[Generation]:
    """One generation for what one program wrote at one time."""
    group: list[_Write] = []
    for one in writes:
        if group and not _goes_on(group, one):
            yield _foreign_generation(group, config)
            group = []
        group.append(one)
    if group:
        yield _foreign_generation(group, config)


def _goes_on(group: Sequence[_Write], one: _Write) -> bool:
    before = next((write.origin for write in reversed(group) if write.origin is not None), None)
    if before is None or one.origin is None:
        return True
    pause_ms = one.origin.timestamp_ms - before.timestamp_ms
    return _author(before) == _author(one.origin) and abs(pause_ms) <= _ONE_WRITE_MS


def _foreign_generation(group: Sequence[_Write], config: dict[str, str]) -> Generation:
    origin = next((write.origin for write in group if write.origin is not None), None)
    message = CoordinatorMessage(GENERATION, _FOREIGN, {"reason": "written by another program"}, origin)
    return Generation(group[-1].offset, message, _fold(config, group), dict(config))


def _fold(config: dict[str, str], writes: Iterable[_Write]) -> tuple[ConfigChange, ...]:
    changes = []
    for one in writes:
        changes.append(ConfigChange(one.key, config.get(one.key), one.new))
        if one.new is None:
            config.pop(one.key, None)
        else:
            config[one.key] = one.new
    return tuple(changes)
