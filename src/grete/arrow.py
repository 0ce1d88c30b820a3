"""Arrow and numpy, imported in one place: records are handled as columns of theirs wherever they are stored or read.

What handles no records does without them: the command line, coordinators, whoever looks at jobs.
"""

from __future__ import annotations

from typing import Any

from grete.errors import MissingExtra

try:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError as error:
    raise MissingExtra(str(error.name), "arrow") from error

__all__ = ["file_systems", "np", "npt", "pa", "pc"]


def file_systems() -> Any:
    """`pyarrow.fs`, the clients of object stores: 13 ms that a worker without any does not spend."""
    from pyarrow import fs

    return fs
