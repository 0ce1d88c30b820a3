"""Clusters that the demo starts for itself, by the name of what manages them, and what a job
has to say to run there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyspark

from grete_workbench.spark_cluster import Hidden, SparkCluster

HERE = Path(__file__).resolve().parent
SPARK = Path(pyspark.__file__).parent
_EXECUTORS = {
    "spark.executor.instances": "1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "768m",
}


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


@contextmanager
def yarn(home: Path) -> Iterator[Mapping[str, str]]:
    """YARN's own: a ResourceManager and a NodeManager. Coordinator and container are its processes, too."""
    from grete_workbench.yarn import YarnCluster

    folder = home / "cluster"
    cluster = YarnCluster(folder, settings={"yarn.nodemanager.resource.memory-mb": "8192"})
    print(f"Starting a ResourceManager and a NodeManager in {folder}", file=sys.stderr, flush=True)
    cluster.start()
    try:
        yield {
            "spark.master": "yarn",
            "job.deploy.yarn.conf.dir": cluster.bootstrap,
            "job.lineage.dir": str(folder / "shared"),
            "spark.yarn.jars": f"local:{SPARK}/jars/*",
            "spark.yarn.stagingDir": cluster.staging,
            **_EXECUTORS,
        }
    finally:
        cluster.stop()


@contextmanager
def kubernetes(home: Path) -> Iterator[Mapping[str, str]]:
    """Kubernetes' API server, and a node of the tests that runs pods as processes, which needs root."""
    from grete_workbench.kube_apiserver import KubeApiServer

    folder = home / "cluster"
    server = KubeApiServer(folder)
    print(f"Starting an API server and a node in {folder}", file=sys.stderr, flush=True)
    server.start()
    image = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": sys.executable,
    }
    words = [
        sys.executable,
        "-m",
        "grete_workbench.kubelet",
        str(server.admin),
        str(folder / "pods"),
        "default",
    ]
    with (folder / "kubelet.log").open("w") as log:
        node = subprocess.Popen(words, env={**os.environ, **image}, stdout=log, stderr=log)
    try:
        yield {
            "spark.master": f"k8s://https://127.0.0.1:{server.nodes[0].port}",
            "spark.kubernetes.container.image": "grete:demo",
            "job.coordinator.kubernetes.kubeconfig": str(server.admin),
            "job.lineage.dir": str(folder / "shared"),
            **_EXECUTORS,
        }
    finally:
        node.terminate()
        node.wait()
        server.stop()


MANAGERS: Mapping[str, Callable[[Path], AbstractContextManager[Mapping[str, str]]]] = {
    "standalone": standalone,
    "yarn": yarn,
    "kubernetes": kubernetes,
}
DEPLOYED = ("yarn", "kubernetes")
"""Those that run coordinator and container as well."""
