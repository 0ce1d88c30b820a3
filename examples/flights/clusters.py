"""Clusters that the demo starts for itself, by the name of what manages them, and what a job
has to say to run there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from grete.testing.spark_cluster import Hidden, SparkCluster

HERE = Path(__file__).resolve().parent


@contextmanager
def standalone(home: Path) -> Iterator[Mapping[str, str]]:
    """Spark's own: two workers, to which the home and the example's folder are empty, as on other machines.

    Each job has a core of each. They share one folder with us, for what the pipeline keeps.
    """
    folder = home / "cluster"
    hidden = Hidden((home, HERE), (folder / "shared",))
    cluster = SparkCluster(folder, nodes=3, cores=2, memory="2g", hidden=hidden)
    print(f"Starting a Spark master and two isolated workers in {folder}", file=sys.stderr, flush=True)
    cluster.start()
    try:
        yield {
            "spark.master": cluster.bootstrap,
            "spark.cores.max": "2",
            "spark.executor.memory": "768m",
            "job.lineage.dir": str(cluster.shared),
        }
    finally:
        cluster.stop()


MANAGERS: Mapping[str, Callable[[Path], AbstractContextManager[Mapping[str, str]]]] = {
    "standalone": standalone
}
