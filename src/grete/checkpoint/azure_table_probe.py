"""The check of a checkpoint store on Azure Table Storage. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from grete.checkpoint.open_store import open_store
from grete.checkpoint.store import StoreContext
from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.config.settings.azure import ACCOUNT_WAY_OUT
from grete.environment import grete_home
from grete.errors import GreteError
from grete.finding import Finding
from grete.model.ids import TaskName


def findings(settings: Settings) -> Iterator[Finding]:
    """Whether the account answers, and lets us read checkpoints."""
    try:
        store = open_store(StoreContext(settings.job.id, settings, grete_home(), SystemClock()))
        assert store is not None, "the caller has looked which one it is"
        with closing(store):
            store.read([TaskName("Partition 0")])
    except GreteError as error:
        yield Finding("azure checkpoints", False, str(error), ACCOUNT_WAY_OUT)
    else:
        yield Finding("azure checkpoints", True, f"{settings.azure.account.shown} answers and can be read")
