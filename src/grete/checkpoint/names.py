"""The name of a job's checkpoint log."""

from __future__ import annotations

from grete.model.ids import JobId


def checkpoint_log_name(job: JobId) -> str:
    """Named as Samza names its checkpoint topic (S2-110)."""
    return f"__samza_checkpoint_ver_1_for_{job.name.replace('_', '-')}_{job.id.replace('_', '-')}"
