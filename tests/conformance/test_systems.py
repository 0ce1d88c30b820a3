"""The contract of systems on every back end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.keyed_log.base import KeyedLog
from grete.systems.base import SegmentWrite, SystemAdmin, TransactionalStore
from grete.systems.local import LocalSystem, Message
from grete.systems.local_segments import pack
from grete.testing.conformance.system import Records, TransactionalStoreConformance


class Local:
    name = "local"

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack

    def _open(self) -> LocalSystem:
        system = LocalSystem(self._directory, SystemClock())
        self._stack.callback(system.close)
        return system

    def admin(self) -> SystemAdmin:
        return self._open()

    def store(self) -> TransactionalStore:
        return self._open()

    def append(self, stream: str, partition: int, records: Records) -> None:
        self._open().append(stream, (Message(key, value, 0, partition) for key, value in records))

    def read(self, stream: str, partition: int) -> list[tuple[bytes | None, bytes | None]]:
        return [
            pair
            for _, batch in self._open().read(stream, partition, 0)
            for pair in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        ]

    def checkpoint_log(self, name: str) -> KeyedLog:
        return self._open().checkpoint_log(name)

    def segment(self, stream: str, partition: int, records: Records) -> SegmentWrite:
        keys, values = zip(*records, strict=True)
        return SegmentWrite(stream, partition, len(records), pack(keys, values, [0] * len(records)))


class TestLocalSystem(TransactionalStoreConformance):
    @pytest.fixture
    def back_end(self, tmp_path: Path) -> Iterator[Local]:
        with ExitStack() as stack:
            yield Local(tmp_path, stack)
