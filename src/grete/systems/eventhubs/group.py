"""Offsets of a consumer group on Event Hubs: groups of its Kafka endpoint, one of the name in each namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from grete.clock import Clock
from grete.model.ids import SystemStreamPartition
from grete.systems.base import GroupOffsets
from grete.systems.eventhubs.hubs import Hubs, Namespace
from grete.systems.kafka.group import KafkaGroupOffsets


class HubGroupOffsets(GroupOffsets):
    """The group of every namespace that has hubs of the system."""

    def __init__(self, hubs: Hubs, system: str, group: str, clock: Clock) -> None:
        self._hubs = hubs
        self._system = system
        self._group = group
        self._clock = clock
        self._groups: dict[Namespace, KafkaGroupOffsets] = {}

    def write(self, offsets: Mapping[SystemStreamPartition, int]) -> None:
        """See GroupOffsets. A hub may be called otherwise than its stream."""
        by_namespace: dict[Namespace, dict[SystemStreamPartition, int]] = {}
        for ssp, offset in offsets.items():
            hub = self._hubs.of(ssp.stream)
            by_namespace.setdefault(hub.namespace, {})[replace(ssp, stream=hub.topic)] = offset
        for namespace, own in by_namespace.items():
            self._of(namespace).write(own)

    def _of(self, namespace: Namespace) -> KafkaGroupOffsets:
        if namespace not in self._groups:
            self._groups[namespace] = KafkaGroupOffsets(
                namespace.connection, self._system, self._group, self._clock, None
            )
        return self._groups[namespace]

    def close(self) -> None:
        """See GroupOffsets."""
        for group in self._groups.values():
            group.close()
