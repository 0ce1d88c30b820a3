"""The cluster manager that a job's configuration names."""

from __future__ import annotations

from grete.config.settings import Settings
from grete.config.settings.deploy import Manager
from grete.deploy.base import ClusterManager
from grete.deploy.kubernetes import Kubernetes
from grete.deploy.yarn import Yarn


def find_manager(settings: Settings) -> ClusterManager | None:
    """The manager that `spark.master` is of; None where coordinator and container run where `grete` is called."""
    match settings.deploy.manager:
        case Manager.YARN:
            return Yarn()
        case Manager.KUBERNETES:
            return Kubernetes()
        case Manager.STANDALONE:
            return None
