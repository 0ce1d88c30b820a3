"""Environment variables by which a coordinator and its launchers speak to a container, each named once.

`COORDINATOR_URL`, `APPLICATION_LIB_DIR` and those with `SAMZA_` are Samza's own names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

COORDINATOR_URL = "COORDINATOR_URL"
CONTAINER_ID = "SAMZA_CONTAINER_ID"
APPLICATION_LIB = "APPLICATION_LIB_DIR"
"""Where a coordinator finds the application's `logging.toml` before it can read the configuration."""
COORDINATOR_CONFIG = "SAMZA_COORDINATOR_SYSTEM_CONFIG"
"""JSON: the part of the configuration with which a container opens the coordinator stream."""
HOME = "GRETE_HOME"
TOKEN_FILE = "GRETE_COORDINATOR_TOKEN_FILE"  # noqa: S105 - a name
CHANNEL = "GRETE_COORDINATOR_CHANNEL"
"""host:port where containers on other machines reach the coordinator; its token is in the coordinator stream."""
CONTAINER_EPOCH = "GRETE_CONTAINER_EPOCH"
EXIT_FILE = "GRETE_EXIT_FILE"
"""Where a container leaves its exit report (`grete.exit_report`)."""
CONFIGURED = "GRETE_CONFIGURED_VARIABLES"
"""Names with commas between: variables that a container has because its configuration refers to them."""
POD_IP, POD_NAME = "GRETE_POD_IP", "GRETE_POD_NAME"
"""Of a pod on Kubernetes: its address, by which executors and containers reach it, and its name."""
HOST_NAME = "GRETE_HOST_NAME"
"""The machine of a container whose own host name is another one with each start, as a pod's is."""
TRACE = "GRETE_TRACEPARENT"
"""The trace of the submission or the fail-over that a container is started for."""
IN_PROCESS = "GRETE_CONTAINER_IN_PROCESS"
"""`1` for a container that is a thread of its launcher's process."""

WARM_JVM = "GRETE_WARM_JVM"
"""`PID:FILE` of the process that keeps a JVM for the containers of `grete dev` (`grete.spark.warm_jvm`)."""

WORKER_SOCKETS = "GRETE_WORKER_SOCKETS"
"""The folder of Spark's sockets to Python that the containers of a kept JVM share; who has named it removes it."""


def grete_home(variables: Mapping[str, str] = os.environ) -> Path:
    """The folder of all state, absolute; it may not exist yet."""
    return Path(variables.get(HOME, ".grete")).resolve()
