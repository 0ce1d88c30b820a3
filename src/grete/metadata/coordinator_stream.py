"""The coordinator stream: config and job state of one job, over a keyed log.

What is kept in memory is the last raw value of each live key, so replay is bounded by live keys and never by the
log's length. Records that are not understood are set aside with their offset; they never stop a job.

A config generation is one atomic append: every changed set-config, a tombstone per vanished key, and a
`grete-config-generation` record of its author, time, origin and reason. So no reader ever sees a mix of
two configurations (S2-47). Real Samza skips the type it does not know.
"""

from __future__ import annotations

import functools
import getpass
import logging
import socket
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grete.clock import Clock
from grete.config.settings import Settings
from grete.errors import WireError
from grete.keyed_log.base import Entry, Fence, KeyedLog
from grete.metadata.quarantine import Quarantine, Quarantined
from grete.model.ids import JobId
from grete.model.messages import SET_CONFIG, VALUE_FIELDS, CoordinatorMessage, MessageOrigin
from grete.wire import coordinator_message as codec

_log = logging.getLogger(__name__)
_LOOPBACK = "127."
_ELSEWHERE = ("192.0.2.1", 9)
"""An address that no host has (RFC 5737)."""

GENERATION = "grete-config-generation"
KNOWN_VERSIONS = (1,)
_CONFIG_WRITES = 10_000
_OFFSET_BYTES = 8
"""A live value is kept behind its offset: 8 bytes a record, where a tuple with a number takes 88."""


def stream_name(job: JobId) -> str:
    """Samza's name for a job's coordinator stream (S1-5): `_` becomes `-` inside name and id."""
    return f"__samza_coordinator_{job.name.replace('_', '-')}_{job.id.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One key's change in a generation; None is absent."""

    key: str
    old: str | None
    new: str | None


class CoordinatorStream:
    """One job's coordinator stream. Thread-safe."""

    def __init__(self, log: KeyedLog, clock: Clock, *, source: str, fence: Fence | None = None) -> None:
        self._log = log
        self._clock = clock
        self._source = source
        self._fence = fence
        self._lock = threading.RLock()
        self._offset = -1
        self._live: dict[str, dict[str, bytes]] = {}
        self._quarantine = Quarantine()
        self._types: dict[bytes, tuple[str, str]] = {}
        self._taken: Counter[str] = Counter()
        self._config_writes: deque[int] = deque(maxlen=_CONFIG_WRITES)
        self._generations: deque[int] = deque(maxlen=_CONFIG_WRITES)

    @property
    def log(self) -> KeyedLog:
        """The log below."""
        return self._log

    def write_under(self, fence: Fence) -> None:
        """Append under this fence from now on; what was read stays known."""
        self._fence = fence

    @property
    def quarantined(self) -> list[Quarantined]:
        """The records read so far that are not understood, by offset."""
        with self._lock:
            return self._quarantine.records()

    def quarantined_count(self) -> int:
        """How many records are set aside."""
        return len(self._quarantine)

    def set_aside(self, message_type: str, key: str, reason: str) -> None:
        """Show a live record, which its reader does not understand and passes over, among the quarantined."""
        name = message_type.lower(), key
        with self._lock:
            kept = self._live.get(name[0], {}).get(key)
            if kept is not None:
                offset = int.from_bytes(kept[:_OFFSET_BYTES], "big")
                self._quarantine.add(name, Quarantined(offset, f"{message_type} {key!r}: {reason}"))

    def remove_quarantined(self, offsets: Collection[int]) -> list[Quarantined]:
        """Delete the records that are set aside at these offsets, in one append; returns those."""
        with self._lock:
            self.catch_up()
            found = {key: one for key, one in self._quarantine.by_key().items() if one.offset in set(offsets)}
            keys = [key for key in found if isinstance(key, bytes)]
            keys += [data for data, name in self._types.items() if name in found]
            if keys:
                self.append(Entry(key, None) for key in keys)
                self.catch_up()
            return sorted(found.values(), key=lambda one: one.offset)

    def catch_up(self) -> int:
        """Read what is new; returns the offset of the last record read."""
        with self._lock:
            for record in self._log.read(self._offset):
                self._take(record.offset, record.key, record.value)
                self._offset = record.offset
            return self._offset

    def _take(self, offset: int, key: bytes, value: bytes | None) -> None:
        name = self._types.get(key) or self._key_of(offset, key, value)
        if name is None:
            return
        if self._quarantine:
            self._quarantine.discard(name)
        self._taken[name[0]] += 1
        if name[0] == SET_CONFIG:
            self._config_writes.append(offset)
        elif name[0] == GENERATION:
            self._generations.append(offset)
        live = self._live.setdefault(name[0], {})
        live.pop(name[1], None)  # the order of the last writes, as a reader of the stream would see it
        if value is None:
            self._types.pop(key, None)  # bounded by live keys
        else:
            self._types[key] = name
            live[name[1]] = offset.to_bytes(_OFFSET_BYTES, "big") + value

    def _key_of(self, offset: int, key: bytes, value: bytes | None) -> tuple[str, str] | None:
        self._quarantine.discard(key)
        try:
            version, message_type, name = codec.decode_key(key)
            check_text(message_type, name)
            if version not in KNOWN_VERSIONS:
                raise WireError(f"version {version!r} is not known")
        except WireError as error:
            if value is not None:
                self._quarantine.add(key, Quarantined(offset, str(error)))
            return None
        return message_type.lower(), name

    def config_offset(self, generations: int) -> int:
        """The offset from which on the last so many generations are; or the last 10,000 writes, where they are fewer.

        0 is the beginning. A program that is not ours may write keys for ever without a generation.
        """
        with self._lock:
            known, writes = self._generations, self._config_writes
            oldest = known[-generations - 1] if len(known) > generations else 0
            return max(oldest, writes[0] if len(writes) == _CONFIG_WRITES else 0)

    def shadowed_count(self) -> int:
        """How many of the records read so far a later one of their key shadows, tombstones among them."""
        with self._lock:
            return sum(self._taken.values()) - sum(map(len, self._live.values()))

    def taken(self, message_type: str) -> int:
        """How many records of a type were read so far, tombstones among them: whether there is anything new."""
        return self._taken[message_type.lower()]

    def raw(self, message_type: str) -> dict[str, bytes]:
        """The live values of a type by key, undecoded, after catching up: for types with a format of their own."""
        with self._lock:
            return {key: kept[_OFFSET_BYTES:] for key, kept in self._kept(message_type)}

    def _kept(self, message_type: str) -> list[tuple[str, bytes]]:
        """The live records of a type, each value behind its offset, after catching up."""
        with self._lock:
            self.catch_up()
            return list(self._live.get(message_type.lower(), {}).items())

    def messages(self, message_type: str) -> dict[str, CoordinatorMessage]:
        """The live messages of a type by key, after catching up. Undecodable values are quarantined."""
        found = {}
        for key, kept in self._kept(message_type):
            message = self._decoded(message_type, key, kept[_OFFSET_BYTES:])
            if message is not None:
                found[key] = message
        return found

    def _decoded(self, message_type: str, key: str, data: bytes) -> CoordinatorMessage | None:
        try:
            read, origin = codec.decode_value(data)
            values = {name: text for name, text in (read or {}).items() if text is not None}
            check_text(*values, *values.values())
        except WireError as error:
            self.set_aside(message_type, key, str(error))
            return None
        return CoordinatorMessage(message_type, key, values, origin)

    def values(self, message_type: str) -> dict[str, str]:
        """The single value of each live message of a type, by key."""
        found: dict[str, str] = {}
        field = VALUE_FIELDS.get(message_type.lower(), "")
        for key, kept in self._kept(message_type):
            data = kept[_OFFSET_BYTES:]
            plain = codec.plain_value(field, data)
            if plain is not None:
                found[key] = plain
                continue
            message = self._decoded(message_type, key, data)
            if message is not None and message.values is not None:
                value = codec.single_value(message_type, dict(message.values))
                if value is not None:
                    found[key] = value
        return found

    def config(self) -> dict[str, str]:
        """The configuration as the stream has it now."""
        return self.values(SET_CONFIG)

    def settings(self) -> Settings:
        """The settings as the stream has them now."""
        return Settings.of(self.config())

    def _origin(self) -> MessageOrigin:
        return MessageOrigin(self._source, host_address(), _user(), self._clock.wall_ms())

    def entry(self, message_type: str, key: str, values: Mapping[str, str] | None) -> Entry:
        """A record of this writer, to be appended with others."""
        message = CoordinatorMessage(message_type, key, values, self._origin())
        return Entry(codec.encode_key(message_type, key), codec.encode_value(message))

    def append(self, entries: Iterable[Entry], *, urgent: bool = False) -> int:
        """Append records atomically under the writer's fence. Durable on return; `urgent` ones on a full disk too."""
        append = self._log.append_urgently if urgent else self._log.append
        return append(list(entries), fence=self._fence)

    def put(self, message_type: str, values_by_key: Mapping[str, str | None]) -> None:
        """Set (or, with None, delete) the single value of messages of a type, atomically."""
        field = VALUE_FIELDS[message_type]
        self.append(
            self.entry(message_type, key, None if value is None else {field: value})
            for key, value in values_by_key.items()
        )

    def write_config(self, config: Mapping[str, str], *, run_id: str, reason: str = "") -> list[ConfigChange]:
        """Make the stream's configuration exactly `config`, in one append.

        Keys that are equal already are not written again; without a change only the run that wrote it is noted, if
        it is another one. Returns the changes.
        """
        with self._lock:
            old = self.config()
            changes = [ConfigChange(k, old.get(k), v) for k, v in sorted(config.items()) if old.get(k) != v]
            changes += [ConfigChange(k, v, None) for k, v in sorted(old.items()) if k not in config]
            if not changes and run_id == self.run_id():
                return []
            self.append([*self._change_entries(changes), self._generation(run_id, reason, len(changes))])
            self.catch_up()
            return changes

    def change_config(
        self,
        asked: Mapping[str, str | None],
        *,
        run_id: str,
        reason: str = "",
        beside: Sequence[Entry] = (),
    ) -> list[ConfigChange]:
        """Set keys (None unsets) and leave all others as they are, even when they change meanwhile; in one append,
        with the records that belong to the change.
        """
        with self._lock:
            old = self.config()
            changes = [ConfigChange(k, old.get(k), v) for k, v in sorted(asked.items()) if old.get(k) != v]
            if not changes:
                if beside:
                    self.append(beside)
                return []  # a generation without a change would be in the way of the next rollback
            self.append(
                [*beside, *self._change_entries(changes), self._generation(run_id, reason, len(changes))]
            )
            self.catch_up()
            return changes

    def _change_entries(self, changes: Iterable[ConfigChange]) -> Iterator[Entry]:
        for change in changes:
            yield self.entry(SET_CONFIG, change.key, None if change.new is None else {"value": change.new})

    def _generation(self, run_id: str, reason: str, changed: int) -> Entry:
        values = {
            "run-id": run_id,
            "reason": reason,
            "changed": str(changed),
            "hostname": socket.gethostname(),
        }
        return self.entry(GENERATION, "current", values)

    def run_id(self) -> str | None:
        """The run that wrote the configuration in force."""
        generation = self.messages(GENERATION).get("current")
        return None if generation is None or generation.values is None else generation.values.get("run-id")


def is_config_key(key: bytes) -> bool:
    """Whether a record's key is that of a configuration's key, or of a generation."""
    if b"config" not in key.lower():
        return False
    try:
        return codec.decode_key(key)[1].lower() in (SET_CONFIG, GENERATION)
    except WireError:
        return False


def check_text(*texts: str) -> None:
    """Refuse what no file, environment or terminal can take.

    Raises:
        WireError: a lone surrogate.
    """
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise WireError(f"not text: {error}") from error


@functools.cache
def host_address() -> str:
    """This machine's address, as Samza writes it: not the loopback's where there is another (S2-14).

    Empty, with a warning, when it cannot be found (S2-15).
    """
    try:
        named = socket.gethostbyname(socket.gethostname())
    except OSError as error:
        _log.warning("the address of this host cannot be looked up, so records do not say it: %s", error)
        return ""
    return (_routed_address() or named) if named.startswith(_LOOPBACK) else named


def _routed_address() -> str:
    """The address from which this machine would send to another one; empty without a way there. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
