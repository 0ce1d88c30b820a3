"""A second version of a job takes the place of the first.

A clone reads what its original reads, has state and checkpoints of its own, and writes into streams whose names end
otherwise. To swap them both are run to the same offsets, the higher of both in each partition; then the original is
marked as succeeded, and the clone writes the original's streams from there on. So each input record has its outputs
in these streams once, from the one or from the other.
"""

from __future__ import annotations

from grete.config.key_tables.job import PROMOTED_OVER, SUCCEEDED_BY
from grete.config.key_tables.task import OUTPUTS_SUFFIX
from grete.errors import JobError
from grete.metadata.history import History
from grete.model.ids import JobId
from grete.operations.configuration import set_config
from grete.operations.job_handle import open_job
from grete.operations.meeting import meeting
from grete.operations.orphans import standing_still


def swap(original: JobId, clone: JobId) -> None:
    """Let the clone write the original's streams, and the original not run any more. Both stand at the same offsets.

    First the original: whatever ends this in between, never do both write. It may be asked for again.

    Raises:
        JobError: one is running, or they do not stand at the same offsets.
        ConfigError: see `set_config`.
    """
    with open_job(original) as first, open_job(clone) as second, standing_still(first, second):
        if meeting(first, second).behind:
            raise JobError(f"{original.shown} and {clone.shown} do not stand at the same offsets")
        set_config(first, {SUCCEEDED_BY.name: clone.shown}, reason=f"{clone.shown} goes on where it stands")
        History(first.stream).append("succeeded", by=clone.shown)
        own = {OUTPUTS_SUFFIX.name: first.settings.task.outputs_suffix, PROMOTED_OVER.name: original.shown}
        set_config(second, own, reason=f"it goes on where {original.shown} ended, and writes its streams")
        History(second.stream).append("promoted", over=original.shown)
