"""What an attempt has to know before it can read its configuration."""

from __future__ import annotations

from grete.config.settings.job import JobSettings
from grete.deploy.application_master import SPLIT_DEPLOYMENT
from grete.environment import APPLICATION_LIB


def launch_variables(job: JobSettings, library: str) -> dict[str, str]:
    """`library` has the application's modules."""
    return {SPLIT_DEPLOYMENT: str(job.is_isolated).lower(), APPLICATION_LIB: library}
