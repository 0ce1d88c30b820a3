"""Settings that are passed on to Spark."""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

from grete.config.key_tables import streams as keys
from grete.config.settings.deploy import requested_resources
from grete.config.settings.section import OptionalSetting, Section, Setting
from grete.errors import ConfigError

_LINEAGE = "spark.openlineage.transport."
_IMAGE = "spark.kubernetes.container.image"
INSTANCES = "spark.executor.instances"
"""0 on Kubernetes: tasks run in the pod that would be their driver."""
RETAINED = "spark.sql.streaming.minBatchesToRetain"
RETAINED_BATCHES = "10"
"""As grete has it unless it is set: a lineage goes back by one batch at most."""
_TEMPLATE = "spark.kubernetes.driver.podTemplate"


class SparkSettings(Section):
    """`spark.*`."""

    _master = Setting(keys.SPARK_MASTER)
    time_zone = OptionalSetting(keys.SPARK_TIME_ZONE)

    @property
    def retained_batches(self) -> int:
        """For how many of the last batches Spark keeps what it would need to go on from them."""
        return int(self.options.get(RETAINED, RETAINED_BATCHES))

    @property
    def master(self) -> str:
        """Where tasks run, in Spark's words: `spark.master`, or for a pod without executors the pod's own cores."""
        return self.options.get(keys.SPARK_MASTER.name, self._master)

    @property
    def is_local(self) -> bool:
        """Whether executors are on this machine, and see its files, environment and packages."""
        return self.master.startswith("local")

    @cached_property
    def options(self) -> dict[str, str]:
        """Every `spark.*` key and its value, as they are written; on a cluster after what else asks for resources."""
        written = {key: value for key, value in self.raw.items() if key.startswith("spark.")}
        if local_cores(self._master) is not None:
            return written
        asked = requested_resources(self.raw) | written
        if not (self._master.startswith("k8s://") and asked.get(INSTANCES, "").strip() == "0"):
            return asked
        del asked[INSTANCES]  # a number that Spark refuses
        cores = asked.get("spark.executor.cores") or asked.get("spark.driver.cores") or "1"
        return asked | {keys.SPARK_MASTER.name: f"local[{cores}]"}

    @property
    def connect(self) -> tuple[str, ...]:
        """The settings, with their values, that ask for Spark Connect."""
        remote, mode = self.raw.get("spark.remote", ""), self.raw.get("spark.api.mode", "")
        asks = {
            "spark.remote": bool(remote),
            "spark.api.mode": mode == "connect",
            keys.SPARK_MASTER.name: self.master.startswith("sc://"),
        }
        return tuple(f"{key}={self.raw[key]}" for key, does in asks.items() if does)

    @property
    def jars(self) -> str:
        """`spark.jars`, as it is written."""
        return self.options.get("spark.jars", "")

    @property
    def packages(self) -> str:
        """`spark.jars.packages`, as it is written."""
        return self.options.get("spark.jars.packages", "")

    @property
    def state_partitions(self) -> int | None:
        """In how many partitions the state of a pipeline shall be; None where the configuration names no number."""
        named = self.options.get("spark.sql.shuffle.partitions", "")
        return int(named) if named.isdecimal() else None

    @property
    def lineage_receiver(self) -> dict[str, str]:
        """`spark.openlineage.transport.*`, without that beginning; empty where no receiver of lineage is named."""
        found = {
            key.removeprefix(_LINEAGE): text for key, text in self.options.items() if key.startswith(_LINEAGE)
        }
        return found if found.get("type", "").strip() else {}

    @property
    def lineage_namespace(self) -> str:
        """`spark.openlineage.namespace`, by OpenLineage's default."""
        return self.options.get("spark.openlineage.namespace", "default")

    @property
    def log_level(self) -> str:
        """The level of Spark's own log."""
        return self.options.get("spark.log.level", "WARN")

    @property
    def driver_cores(self) -> str:
        """The cores that a cluster manager gives the driver."""
        return self.options.get("spark.driver.cores", "1")

    @property
    def driver_memory(self) -> str:
        """The heap of the driver, in Spark's words."""
        return self.options.get("spark.driver.memory", "1g")

    @property
    def decides_executors(self) -> bool:
        """Whether Spark gets and gives back executors as it finds right."""
        return self.options.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true"

    @property
    def executor_memory(self) -> str:
        """The memory of an executor, in Spark's words."""
        return self.options.get("spark.executor.memory", "1g")

    @property
    def driver_java_options(self) -> str:
        """What the driver's JVM is started with."""
        return self.options.get("spark.driver.extraJavaOptions", "")

    @property
    def image(self) -> str:
        """The image of pods on Kubernetes.

        Raises:
            ConfigError: none is named.
        """
        if found := self.options.get(_IMAGE):
            return found
        raise ConfigError(f"{_IMAGE} is not set: name an image with grete, PySpark and the application")

    @property
    def image_pull_policy(self) -> str:
        """When a node of Kubernetes fetches the image."""
        return self.options.get(f"{_IMAGE}.pullPolicy", "IfNotPresent")

    @property
    def pod_template(self) -> Path | None:
        """A file with a pod on Kubernetes to which the driver's is added."""
        found = self.options.get(f"{_TEMPLATE}File")
        return Path(found) if found else None

    @property
    def pod_template_container(self) -> str | None:
        """The name of its container that is the driver; None for the first."""
        return self.options.get(f"{_TEMPLATE}ContainerName") or None

    @property
    def namespace(self) -> str | None:
        """The namespace of pods on Kubernetes."""
        return self.options.get("spark.kubernetes.namespace") or None

    @cached_property
    def cores(self) -> int | None:
        """The cores that a container gets; None where that is left to the cluster."""
        if (local := local_cores(self.master)) is not None:
            return local
        if (cores := self.options.get("spark.cores.max", "")).isdecimal():
            return max(1, int(cores))
        each, executors = (self.options.get(f"spark.executor.{name}", "") for name in ("cores", "instances"))
        return max(1, int(each) * int(executors)) if each.isdecimal() and executors.isdecimal() else None


def local_cores(master: str) -> int | None:
    """How many tasks a local master runs at once; None for one whose tasks run in processes of their own."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?])?", master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else max(1, int(found[1] or "1"))
