"""One server of a kind for a run, whichever worker asks first; without a run, one for the pytest process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from grete.testing.server_cluster import ServerCluster

Cluster = TypeVar("Cluster", bound=ServerCluster[Any])
FOLDER = "GRETE_TEST_SERVERS"
"""Where the servers of the run keep their files. The run ends them."""
_opened: dict[str, ServerCluster[Any]] = {}


@contextmanager
def shared(name: str, make: Callable[..., Cluster], own_directory: Callable[[], Path]) -> Iterator[Cluster]:
    """The run's cluster of this name, started by the first test.

    `make(directory, outlives_us=...)` gives a cluster that is not started. In a run it lives until `end` or the end
    of the run, whatever becomes of the worker that started it. Outside of one it is started in `own_directory` and
    stopped.
    """
    folder = os.environ.get(FOLDER)
    if folder is None:
        cluster = make(own_directory())
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
        return
    directory = Path(folder) / name
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cluster = make(directory, outlives_us=True)
        if not cluster.is_running:
            cluster.start()
    _opened[name] = cluster
    yield cluster


def end(name: str) -> None:
    """Kill the run's cluster of this name. An idle node costs two seconds of a processor every minute."""
    cluster = _opened.pop(name, None)
    for node in cluster.nodes if cluster is not None else ():
        cluster.kill(node.number)
