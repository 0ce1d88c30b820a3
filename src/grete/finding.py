"""The result of a check of `grete doctor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result; `way_out` is for when it is not ok."""

    check: str
    ok: bool
    found: str
    way_out: str = ""
