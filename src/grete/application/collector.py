"""Outputs of a task: gathered as bytes; those of the application's process are handed over with a commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, Generic, TypeVar

from grete.api import IncomingMessageEnvelope
from grete.application.pipe import Blob, pack_column
from grete.application.serdes import StreamSerdes, base_of
from grete.errors import ApplicationError
from grete.model.streams import TRACE_HEADERS, Headers

_NO_PARTITION = -1
_SETTLE = 1_000
"""So many records become columns, which take half the memory of the objects."""

GivenHeaders = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]


def encoded(headers: GivenHeaders) -> Headers:
    """Headers as they are written.

    Raises:
        TypeError: a name is no text, or a value neither bytes nor text nor None.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [_header(name, value) for name, value in pairs]


def _header(name: str, value: bytes | str | None) -> tuple[str, bytes | None]:
    if not isinstance(name, str) or not isinstance(value, bytes | str | None):
        raise TypeError(
            f"header {name!r}: a name is a text, and a value bytes, text or None; got {value!r:.100}"
        )
    return name, value.encode() if isinstance(value, str) else value


def _with_trace(headers: Headers | None, of_message: Headers) -> Headers | None:
    """A record's headers with the trace of the message that it was sent for, unless they name one themselves."""
    if headers and any(name in TRACE_HEADERS for name, _ in headers):
        return headers
    return [*(headers or ()), *(one for one in of_message if one[0] in TRACE_HEADERS)] or None


def check_size(value: bytes | None, largest: int, stream: str) -> None:
    """Refuse a message that the stream's system does not take.

    Raises:
        ValueError: it is too large.
    """
    if value is not None and len(value) > largest:
        raise ValueError(
            f"a message of {len(value)} bytes is larger than {stream} takes, which is {largest} for key "
            f"and value; make it smaller, or raise max.message.bytes of the stream (and of its readers)"
        )


def _is_of_bytes(value: object) -> bool:
    if isinstance(value, memoryview):
        return value.nbytes == len(value)
    return isinstance(value, bytes | bytearray | None)


class GatheredOutput(ABC):
    """One output stream as one task sees it: the newest records as lists, older ones as columns."""

    def __init__(self, stream: str, serdes: StreamSerdes, partitions: int, largest: int) -> None:
        """`largest` is how many bytes a message may have."""
        self.stream = stream
        self.key_to_bytes = serdes.key.to_bytes
        self.message_to_bytes = serdes.message.to_bytes
        self.partitions = partitions
        self.largest = largest
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps_ms: list[int] = []
        self.chosen: dict[int, int] = {}
        """By row: the partition, where the application chose one."""
        self.headers: dict[int, Headers] = {}
        """By row; most records have none."""

    def cut(self, length: int) -> None:
        """Take back what the lists hold beyond `length`."""
        for column in (self.keys, self.values, self.timestamps_ms):
            del column[length:]
        if self.chosen:
            self.chosen = {row: one for row, one in self.chosen.items() if row < length}
        if self.headers:
            self.headers = {row: of_row for row, of_row in self.headers.items() if row < length}

    def settle(self, at_least: int) -> None:
        """Turn the lists into columns when they are that long.

        Raises:
            ApplicationError: a serde of the application's made something else than bytes.
        """
        if len(self.keys) < at_least:
            return
        try:
            self._to_columns()
        except (TypeError, OverflowError) as error:
            raise ApplicationError(self._refused()) from error
        self.cut(0)

    def _refused(self) -> str:
        """What of the records cannot be a column."""
        made = (
            f"{type(value).__name__} of a {what}: {value!r:.100}"
            for what, column in (("key", self.keys), ("message", self.values))
            for value in column
            if not _is_of_bytes(value)
        )
        first = next(made, "what is no bytes")
        return f"the serde of {self.stream} made {first}; a serde's to_bytes gives bytes or None"

    @abstractmethod
    def _to_columns(self) -> None:
        """Keep what the lists have, at least one record, as columns."""

    def chosen_by_row(self) -> list[int]:
        """The partition of each row, -1 where its key decides; empty when all keys do."""
        return [self.chosen.get(row, _NO_PARTITION) for row in range(len(self.keys))] if self.chosen else []


def _whole(time_ms: Any, stream: str) -> int:
    """A time that `send` was given, also as NumPy's numbers."""
    try:
        found = index(time_ms)
    except TypeError:
        raise TypeError(
            f"timestamp_ms={time_ms!r:.100} of a record to {stream} is no whole number of milliseconds"
        ) from None
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"timestamp_ms={time_ms!r:.100} of a record to {stream} is no number of 64 bits")
    return found


Output = TypeVar("Output", bound=GatheredOutput)


class CarriedOutput(GatheredOutput):
    """Its columns are blobs for the worker."""

    def __init__(self, stream: str, serdes: StreamSerdes, partitions: int, largest: int) -> None:
        super().__init__(stream, serdes, partitions, largest)
        self._key_base = base_of(serdes.key)
        self._settled: list[tuple[list[Any], list[Blob]]] = []

    def _to_columns(self) -> None:
        headers = [
            [row, [[name, None if value is None else value.hex()] for name, value in of_row]]
            for row, of_row in self.headers.items()
        ]
        blobs = [
            *pack_column(self.keys),
            *pack_column(self.values),
            array("q", self.timestamps_ms),
            array("i", self.chosen_by_row()),
        ]
        self._settled.append(([self.stream, self._key_base, headers], blobs))

    def take(self) -> list[tuple[list[Any], list[Blob]]]:
        """Everything gathered; the output is empty afterwards.

        Each piece is its stream, the serde that its keys' derives from, and headers by row, and eight blobs.
        """
        self.settle(1)
        settled, self._settled = self._settled, []
        return settled


class GatheringCollector(Generic[Output]):
    """Implements `grete.MessageCollector` for one task. Used by one thread."""

    def __init__(self, open_output: Callable[[str], Output], *, passes_traces: bool = False) -> None:
        """With `passes_traces` what is sent for a message goes on with the trace that the message's headers name."""
        self._open = open_output
        self._passes_traces = passes_traces
        self._outputs: dict[str, Output] = {}
        self._marks: list[tuple[Output, int]] | None = None
        self.is_serializing = False
        self.timestamp_ms = 0
        self.in_hand: Headers = ()
        """The headers of the message in hand."""

    def send(
        self,
        stream: str,
        message: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders | None = None,
    ) -> None:
        """See grete.MessageCollector."""
        time_ms = self.timestamp_ms if timestamp_ms is None else _whole(timestamp_ms, stream)
        output = self._outputs.get(stream)
        if output is None:
            output = self._outputs[stream] = self._open(stream)
        self.is_serializing = True  # and stays so when a serde refuses
        key_bytes = output.key_to_bytes(key)
        value = output.message_to_bytes(message)
        kept = encoded(headers) if headers else None
        if self.in_hand and self._passes_traces:
            kept = _with_trace(kept, self.in_hand)
        self.is_serializing = False
        if value is not None and len(value) > output.largest:
            check_size(value, output.largest, stream)
        if partition is not None:
            if not 0 <= partition < output.partitions:
                raise ValueError(f"{stream} has partitions 0 to {output.partitions - 1}, not {partition}")
            output.chosen[len(output.keys)] = partition
        if self._marks is not None:
            self._marks.append((output, len(output.keys)))
        if kept:
            output.headers[len(output.keys)] = kept
        output.keys.append(key_bytes)
        output.values.append(value)
        output.timestamps_ms.append(time_ms)

    def passing_traces(self, process: Callable[..., object]) -> Callable[..., object]:
        """`process`, such that what it sends goes on with the trace of the message that it is called for.

        Where traces are not passed on it is the same: nothing is to be done for each message then.
        """
        if not self._passes_traces:
            return process

        def traced(envelope: IncomingMessageEnvelope, *rest: Any) -> object:
            self.in_hand = envelope.headers
            return process(envelope, *rest)

        return traced

    def begin_message(self) -> None:
        """From here on `undo_message` can take back what is sent."""
        self.is_serializing = False
        self._marks = []

    def undo_message(self) -> None:
        """Take back what was sent since `begin_message`."""
        for output, length in reversed(self._marks or []):
            output.cut(length)
        self._marks = None

    def settle(self) -> None:
        """Between messages, now and then: what was sent is final, and is kept in less memory."""
        self._marks, self.in_hand = None, ()
        for output in self._outputs.values():
            output.settle(_SETTLE)


class CarriedCollector(GatheringCollector[CarriedOutput]):
    """Of a task in the application's process."""

    def take(self) -> list[tuple[list[Any], list[Blob]]]:
        """What each output has."""
        return [one for output in self._outputs.values() for one in output.take()]
