"""The logs of a job's containers on this machine, and their last lines."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from grete.operations.job_handle import JobHandle
from grete.text_logs import printable

_LONGEST_LINE = 2_000
"""Characters of a line that are shown, and bytes that a line is taken to have."""


def container_logs(handle: JobHandle) -> dict[str, Path]:
    """The log of each container that was started here, by its id."""
    found = sorted((handle.state_directory / "logs").glob("container-*.log"))
    return {path.stem.removeprefix("container-"): path for path in found}


def last_lines(path: Path, most: int) -> list[str]:
    """The last lines, without what does something to a screen; what is wrong with a file that cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most * _LONGEST_LINE))
            found = deque(file, maxlen=most)
    except OSError as error:
        return [str(error)]
    return [printable(line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\n")) for line in found]
