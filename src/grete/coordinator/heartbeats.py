"""What containers have said of themselves, and when: the source of liveness, progress and rates."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grete.clock import Clock

_WINDOW_S = 60.0


@dataclass(slots=True)
class Heard:
    """The last heartbeat of an incarnation, and how many records it had processed in the last minute.

    `restarts` counts the incarnations that were heard of before it.
    """

    epoch: int
    at_s: float
    body: Mapping[str, Any]
    samples: deque[tuple[float, int]] = field(default_factory=deque)
    restarts: int = 0

    @property
    def records_per_s(self) -> float:
        """Records processed a second, over the last minute or since the first heartbeat."""
        (first_s, first), (last_s, last) = self.samples[0], self.samples[-1]
        return max(0, last - first) / (last_s - first_s) if last_s > first_s else 0.0


class Heartbeats:
    """The last heartbeat of each container. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heard: dict[str, Heard] = {}

    def take(self, container: str, body: Mapping[str, Any]) -> None:
        """Remember a heartbeat that was accepted."""
        now_s, epoch = self._clock.monotonic_s(), int(body["epoch"])
        with self._lock:
            before = self._heard.get(container)
            is_new = before is None or before.epoch != epoch
            samples = deque() if before is None or is_new else before.samples
            restarts = 0 if before is None else before.restarts + is_new
            samples.append((now_s, int(body.get("records", 0))))
            while samples[0][0] < now_s - _WINDOW_S and len(samples) > 1:
                samples.popleft()
            self._heard[container] = Heard(epoch, now_s, dict(body), samples, restarts)

    def heard(self) -> dict[str, Heard]:
        """The last heartbeat of each container."""
        with self._lock:
            return {
                id_: Heard(h.epoch, h.at_s, h.body, deque((h.samples[0], h.samples[-1])), h.restarts)
                for id_, h in self._heard.items()
            }

    def bodies(self) -> dict[str, dict[str, Any]]:
        """What each container said last."""
        return {id_: dict(heard.body) for id_, heard in self.heard().items()}
