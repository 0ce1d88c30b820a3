"""Checks of Azure Storage, for a job that elects its leader or keeps checkpoints there. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from grete.cli.doctor_finding import Finding
from grete.config.settings import Settings
from grete.errors import GreteError

_WAY_OUT = (
    "check azure.storage.connect, and that its key, signature or identity may read and write in the account"
)


def azure_findings(settings: Settings) -> Iterator[Finding]:
    """Whether the account answers, and lets us read what the job needs there."""
    if settings.coordinator.election == "azure":
        yield _finding("azure leadership", _leadership, settings)
    if settings.task.checkpoint_store == "grete.checkpoint.azure-table":
        yield _finding("azure checkpoints", _checkpoints, settings)


def _finding(check: str, look: Callable[[Settings], str], settings: Settings) -> Finding:
    try:
        return Finding(check, True, look(settings))
    except GreteError as error:
        return Finding(check, False, str(error), _WAY_OUT)


def _leadership(settings: Settings) -> str:
    from grete.clock import SystemClock
    from grete.coordination.factory import open_coordination
    from grete.environment import grete_home
    from grete.model.fence import job_scope

    ttl_s = settings.coordinator.lease_ttl_s
    with closing(open_coordination(settings, grete_home(), SystemClock(), ttl_s=ttl_s)) as coordination:
        holder = coordination.holder(job_scope(settings.job.id))
    led = "nobody leads the job" if holder is None else f"the job is led by {holder.described()}"
    return f"{settings.azure.account.shown}, container {settings.azure.container}: {led}"


def _checkpoints(settings: Settings) -> str:
    from grete.checkpoint.open_store import open_store
    from grete.checkpoint.store import StoreContext
    from grete.clock import SystemClock
    from grete.environment import grete_home
    from grete.model.ids import TaskName

    store = open_store(StoreContext(settings.job.id, settings, grete_home(), SystemClock()))
    assert store is not None, "the caller has looked which one it is"
    with closing(store):
        store.read([TaskName("Partition 0")])
    return f"{settings.azure.account.shown} answers and can be read"
