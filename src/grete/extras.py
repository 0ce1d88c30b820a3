"""Optional dependencies, looked for before anything begins that cannot go on without them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from grete.errors import MissingExtra

_ARROW = ("pyarrow", "numpy")
_MODULES = {"arrow": _ARROW, "spark": ("pyspark", *_ARROW)}


def require(extra: Literal["arrow", "spark"]) -> None:
    """Look for the modules of an extra, and import none.

    Raises:
        MissingExtra: one is not installed.
    """
    for module in _MODULES[extra]:
        if find_spec(module) is None:
            raise MissingExtra(module, extra)
