"""Offsets of a consumer group, written under a fence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.clock import Clock
from grete.errors import LogUnreachable
from grete.kafka.client import KafkaConnection
from grete.kafka.group_client import GroupClient
from grete.kafka.outcome import NotWritten
from grete.model.ids import SystemStreamPartition
from grete.systems.base import GroupOffsets
from grete.systems.kafka.fence import FenceReader


@dataclass(frozen=True, slots=True)
class FenceWatch:
    """Checks whether an epoch is still the highest of its scope."""

    reader: FenceReader
    epoch: int

    def check(self) -> None:
        """See FenceReader.check.

        Raises:
            Fenced, LogError: see there. LogUnreachable: no answer.
        """
        try:
            self.reader.check(self.epoch)
        except NotWritten as error:
            raise LogUnreachable(f"the container's epoch is not known: {error}") from error


class KafkaGroupOffsets(GroupOffsets):
    """A group on one cluster. The fence, where there is one, is looked at before each write."""

    def __init__(
        self, connection: KafkaConnection, system: str, group: str, clock: Clock, watch: FenceWatch | None
    ) -> None:
        self._watch = watch
        self._client = GroupClient(connection, system, group, clock)

    def write(self, offsets: Mapping[SystemStreamPartition, int]) -> None:
        """See GroupOffsets."""
        if self._watch is not None:
            self._watch.check()
        self._client.commit({(ssp.stream, ssp.partition): offset for ssp, offset in offsets.items()})

    def close(self) -> None:
        """See GroupOffsets."""
        self._client.close()
        if self._watch is not None:
            self._watch.reader.close()
