"""The containers of processors that come and go: what there is room for, written as a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from grete.clock import Clock
from grete.config.key_tables.job import CONTAINER_IDS
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.model.ids import ContainerId


class ContainerRoom:
    """Follows for which containers there is room, once that has stood still for the debounce time."""

    def __init__(self, stream: CoordinatorStream, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._room: tuple[ContainerId, ...] = ()
        self._fitted: tuple[ContainerId, ...] = ()
        self._since_s = 0.0

    def fit(self, containers: Sequence[ContainerId], debounce_s: float) -> None:
        """There is room for these. It is written as a change of the configuration, which is then followed."""
        now_s = self._clock.monotonic_s()
        if tuple(containers) != self._room:
            self._room, self._since_s = tuple(containers), now_s
        if now_s - self._since_s < debounce_s or self._room == self._fitted:
            return
        self._fitted = self._room
        if self._room != self._stream.settings().job.container_ids:  # in force now, or soon
            self._stream.change_config(
                {CONTAINER_IDS.name: ",".join(containers)},
                run_id=self._stream.run_id() or "",
                reason="processors came or went",
            )

    def forget(self) -> None:
        """A configuration was written that may name other containers than there is room for."""
        self._fitted = ()
