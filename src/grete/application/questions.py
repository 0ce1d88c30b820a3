"""What the application's process asks its worker meanwhile: a store's entry, a stream's partitions, a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from grete.api import Serde
from grete.application.carried import rebuild_error
from grete.application.pipe import Blob, Pipe, unpack_column
from grete.application.serdes import BUILT_IN, StreamSerdes, load_own_serde

_WHOLE_ROWS = 50_000
"""A store with no more entries is read once, and not once for each key."""


class Worker:
    """The worker, as its application's process can ask it."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.config: Mapping[str, str] = {}

    def ask(self, verb: str, value: object, blobs: Sequence[Blob] = ()) -> tuple[Any, list[bytes]]:
        """The worker's answer.

        Raises:
            GreteError: it refuses.
        """
        self._pipe.send(verb, value, blobs)
        kind, answer, found = self._pipe.receive()
        if kind == "refused":
            raise rebuild_error(answer)
        return answer, found

    def resolve(self, key: str, value: str) -> str:
        """The value of a key of the configuration: the worker's answer, where it refers to a secret."""
        return str(self.ask("config", key)[0]) if "${" in value else value

    def serde(self, described: Sequence[str]) -> Serde:
        """The serde of this implementation and name."""
        implementation, name = described
        if implementation in BUILT_IN:
            return BUILT_IN[implementation]()
        return load_own_serde(implementation, name, self.config)

    def serdes(self, described: Sequence[Sequence[str]]) -> StreamSerdes:
        """Serdes of keys and messages."""
        return StreamSerdes(*map(self.serde, described))


class WorkersStore:
    """The base of a store, in the worker's file."""

    def __init__(self, worker: Worker, task: int, name: str) -> None:
        self._worker = worker
        self._place = [task, name]
        self.forget()

    def forget(self) -> None:
        """The file is another's, or what was changed since it was read is not in memory any more."""
        self._whole: dict[bytes, bytes] | None = None
        self._is_small = True

    def get(self, key: bytes) -> bytes | None:
        """See Base."""
        if self._whole is None and self._is_small:
            rows = list(islice(self.scan(None, None), _WHOLE_ROWS + 1))
            self._is_small = len(rows) <= _WHOLE_ROWS
            self._whole = dict(rows) if self._is_small else None
        if self._whole is not None:
            return self._whole.get(key)
        is_there, blobs = self._worker.ask("get", self._place, [key])
        return blobs[0] if is_there else None

    def scan(self, first: bytes | None, last: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """See Base."""
        low = first or b""
        while True:
            is_all, blobs = self._worker.ask("scan", [*self._place, last is not None], [low, last or b""])
            rows = list(zip(unpack_column(blobs[:3]), unpack_column(blobs[3:]), strict=True))
            yield from rows  # type: ignore[misc] # a store has no None
            if is_all:
                return
            low = (rows[-1][0] or b"") + b"\0"
