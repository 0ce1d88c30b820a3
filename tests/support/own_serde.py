"""A serde as applications write them: with a setting of its own, and errors of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import grete


class Readings(grete.Serde):
    """`place:number unit`, as dicts; the unit is `serializers.registry.NAME.unit`."""

    def __init__(self, unit: str) -> None:
        self._unit = unit

    @classmethod
    def from_config(cls, name: str, config: Mapping[str, str]) -> Self:
        """Called by grete."""
        return cls(config[f"serializers.registry.{name}.unit"])

    def to_bytes(self, value: Any) -> bytes | None:
        """A KeyError for a place that is none."""
        return None if value is None else f"{value['place']}:{value['degrees']} {self._unit}".encode()

    def from_bytes(self, data: bytes | None) -> Any:
        """An IndexError or ValueError for what is no reading."""
        if data is None:
            return None
        parts = data.decode().split(":")
        return {"place": parts[0], "degrees": float(parts[1].removesuffix(f" {self._unit}"))}
