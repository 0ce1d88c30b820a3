"""Optional dependencies, looked for before anything begins that cannot go on without them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from grete.errors import MissingExtra

_ARROW = ("pyarrow", "numpy")
_MODULES = {
    "arrow": _ARROW,
    "spark": ("pyspark", *_ARROW),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "lineage": ("openlineage.client",),
}


def require(extra: Literal["arrow", "spark", "otel", "lineage"]) -> None:
    """Look for the modules of an extra, and import none.

    Raises:
        MissingExtra: one is not installed.
    """
    for module in _MODULES[extra]:
        try:
            is_there = find_spec(module) is not None
        except ModuleNotFoundError:  # a package above it is not there
            is_there = False
        if not is_there:
            raise MissingExtra(module, extra)
