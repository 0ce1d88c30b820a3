"""Metrics in the application's process: their worker checks names, and adds up what is handed over with a commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grete.errors import IllegalStateError

Plain = int | float | str | bool | None
Register = Callable[[str, str, str, Any], object]
"""Registers (kind, group, name, value) with the worker; raises what it refuses."""


class SetCounter:
    """Implements `grete.Counter`, and knows whether it was set."""

    __slots__ = ("_is_set", "count")

    def __init__(self) -> None:
        self.count = 0
        self._is_set = False

    def inc(self, n: int = 1) -> int:
        """See grete.Counter."""
        self.count += n
        return self.count

    def dec(self, n: int = 1) -> int:
        """See grete.Counter."""
        return self.inc(-n)

    def set(self, n: int) -> None:
        """See grete.Counter."""
        self.count, self._is_set = n, True

    def clear(self) -> None:
        """See grete.Counter."""
        self.set(0)

    def was_set(self) -> bool:
        """Whether it was since this was last asked."""
        was_set, self._is_set = self._is_set, False
        return was_set


class SetGauge:
    """Implements `grete.Gauge`, and knows whether it was set."""

    __slots__ = ("_is_changed", "value")

    def __init__(self, value: Plain) -> None:
        self.set(value)

    def set(self, value: Plain) -> None:
        """See grete.Gauge."""
        if not isinstance(value, Plain):
            raise TypeError(f"a gauge takes a number, a text or None, not {type(value).__name__}; convert it")
        self.value, self._is_changed = value, True

    def was_set(self) -> bool:
        """Whether it was since this was last asked."""
        was_set, self._is_changed = self._is_changed, False
        return was_set


class CarriedCounter(SetCounter):
    """A counter whose changes are handed over as calls."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        super().__init__()
        self._before = 0

    def take(self) -> list[Any]:
        """Calls that do the same to the worker's counter."""
        added, self._before = self.count - self._before, self.count
        if self.was_set():
            return [["set", [self.count]]]
        return [["inc", [added]]] if added else []


class CarriedGauge(SetGauge):
    """A gauge whose changes are handed over as calls; the worker knows its first value."""

    __slots__ = ()

    def __init__(self, value: Plain) -> None:
        super().__init__(value)
        self._is_changed = False

    def take(self) -> list[Any]:
        """As `CarriedCounter.take`."""
        return [["set", [self.value]]] if self.was_set() else []


class CarriedTimer:
    """Implements `grete.Timer`."""

    def __init__(self) -> None:
        self._count, self._total = 0, 0.0

    def update(self, duration: float) -> None:
        """See grete.Timer."""
        if 0 < duration < float("inf"):
            self._count += 1
            self._total += duration

    def take(self) -> list[Any]:
        """As `CarriedCounter.take`."""
        if not self._count:
            return []
        taken = [["add", [self._count, self._total]]]
        self._count, self._total = 0, 0.0
        return taken


_Metric = CarriedCounter | CarriedGauge | CarriedTimer


class CarriedMetrics:
    """Implements `grete.MetricsRegistry` for one task."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._metrics: dict[tuple[str, str], tuple[str, _Metric]] = {}

    def counter(self, name: str, *, group: str = "application") -> Any:
        """See grete.MetricsRegistry."""
        return self._registered("counter", group, name, None, CarriedCounter)

    def gauge(self, name: str, value: Plain = 0, *, group: str = "application") -> Any:
        """See grete.MetricsRegistry."""
        return self._registered("gauge", group, name, value, lambda: CarriedGauge(value))

    def timer(self, name: str, *, group: str = "application") -> Any:
        """See grete.MetricsRegistry."""
        return self._registered("timer", group, name, None, CarriedTimer)

    def _registered(self, kind: str, group: str, name: str, value: Any, make: Callable[[], _Metric]) -> Any:
        found = self._metrics.get((group, name))
        if found is None:
            self._register(kind, group, name, value)
            found = self._metrics[group, name] = (kind, make())
        if found[0] != kind:
            raise IllegalStateError(
                f"metric {name!r} of group {group!r} is another kind already; name one of them differently"
            )
        return found[1]

    def take(self) -> list[Any]:
        """[kind, group, name, calls] of each that has changed."""
        taken = ([kind, *place, one.take()] for place, (kind, one) in self._metrics.items())
        return [one for one in taken if one[3]]
