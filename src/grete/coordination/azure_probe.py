"""The check of leader election on Azure Storage. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.settings.azure import ACCOUNT_WAY_OUT
from grete.coordination.factory import open_coordination
from grete.environment import grete_home
from grete.errors import GreteError
from grete.finding import Finding
from grete.model.fence import job_scope


def findings(settings: Settings) -> Iterator[Finding]:
    """Whether the account answers, and lets us see who leads."""
    try:
        ttl_s = settings.coordinator.lease_ttl_s
        with closing(open_coordination(settings, grete_home(), SystemClock(), ttl_s=ttl_s)) as coordination:
            holder = coordination.holder(job_scope(settings.job.id))
    except GreteError as error:
        yield Finding("azure leadership", False, str(error), ACCOUNT_WAY_OUT)
        return
    led = "nobody leads the job" if holder is None else f"the job is led by {holder.described()}"
    where = f"{settings.azure.account.shown}, container {settings.azure.container}"
    yield Finding("azure leadership", True, f"{where}: {led}")
