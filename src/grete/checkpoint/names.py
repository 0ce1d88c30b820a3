"""The name of a job's checkpoint log, and of what is in its records' keys."""

from __future__ import annotations

from collections.abc import Mapping

from grete.config.key_tables.job import SSP_GROUPER
from grete.model.ids import JobId


def checkpoint_log_name(job: JobId) -> str:
    """Named as Samza names its checkpoint topic (S2-110)."""
    return f"__samza_checkpoint_ver_1_for_{job.name.replace('_', '-')}_{job.id.replace('_', '-')}"


def grouper_of(config: Mapping[str, str]) -> str:
    """The SSP grouper by the name that the keys of the checkpoint log have: Samza's readers refuse another."""
    return config.get(SSP_GROUPER.name) or str(SSP_GROUPER.default)
