"""Settings of deployments on a cluster manager, and Samza's requests for resources in Spark's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from grete.config.choices import ResourceType
from grete.config.key_tables import coordinator, deploy
from grete.config.key_tables.streams import SPARK_MASTER
from grete.config.settings.section import OptionalSetting, Section, Setting
from grete.config.values import required_value_of, value_of


class Manager(StrEnum):
    """The cluster manager that runs a job's coordinator with its container."""

    YARN = "yarn"
    KUBERNETES = "kubernetes"
    STANDALONE = "standalone"
    """Or none: coordinator and container run where `grete` is called."""


REQUESTS = {
    coordinator.MEMORY: "spark.executor.memory={}m",
    coordinator.CORES: "spark.executor.cores={}",
    coordinator.YARN_AM_MEMORY: "spark.driver.memory={}m",
    coordinator.YARN_AM_CORES: "spark.driver.cores={}",
    coordinator.YARN_AM_JAVA: "spark.yarn.appMasterEnv.JAVA_HOME={}",
    coordinator.YARN_AM_OPTIONS: "spark.driver.extraJavaOptions={}",
    coordinator.YARN_STAGING: "spark.yarn.stagingDir={}",
    coordinator.YARN_QUEUE: "spark.yarn.queue={}",
    coordinator.YARN_LABEL: "spark.yarn.executor.nodeLabelExpression={}",
    coordinator.YARN_AM_LABEL: "spark.yarn.am.nodeLabelExpression={}",
    coordinator.YARN_PRINCIPAL: "spark.kerberos.principal={}",
    coordinator.YARN_KEYTAB: "spark.kerberos.keytab={}",
    coordinator.YARN_VIEWERS: "spark.ui.view.acls={}",
    coordinator.YARN_MODIFIERS: "spark.modify.acls={}",
}
"""Keys by which Samza's jobs ask a cluster manager for something, and the setting of Spark's that does so."""


def requested_resources(raw: Mapping[str, str]) -> dict[str, str]:
    """What `cluster-manager.*` and `yarn.*` ask a cluster manager for, as `spark.*` settings.

    Raises:
        ConfigError: a value is of another type than its key's.
    """
    found: dict[str, str] = {}
    for key, words in REQUESTS.items():
        if key.name in raw:
            name, _, form = words.partition("=")
            found[name] = form.format(value_of(raw, key))
    return found


@dataclass(frozen=True, slots=True)
class Resource:
    """A file or archive of `yarn.resources.*`, and its name in the folder in which each process works."""

    name: str
    path: str
    type: ResourceType | None
    """None where the configuration does not say."""


class DeploySettings(Section):
    """`job.deploy.*`, and the package of Samza's `yarn.package.path`."""

    master = Setting(SPARK_MASTER)
    """As it is written; `SparkSettings.master` is where tasks run."""
    environment = OptionalSetting(deploy.ENVIRONMENT)
    hadoop_folder = OptionalSetting(deploy.YARN_CONF)
    _address = OptionalSetting(deploy.YARN_ADDRESS)
    package = OptionalSetting(coordinator.YARN_PACKAGE)
    """An archive that is unpacked as `__package`."""

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """What YARN brings besides, in the order of their names."""
        head, _, tail = coordinator.YARN_RESOURCE.name.partition("%s")
        named = (key for key in sorted(self.raw) if key.startswith(head) and key.endswith(tail))
        return tuple(self._resource(key[len(head) : -len(tail)]) for key in named)

    def _resource(self, name: str) -> Resource:
        path = required_value_of(self.raw, coordinator.YARN_RESOURCE, name)
        shown = value_of(self.raw, coordinator.YARN_RESOURCE_NAME, name) or name
        return Resource(shown, path, value_of(self.raw, coordinator.YARN_RESOURCE_TYPE, name))

    @cached_property
    def manager(self) -> Manager:
        """The manager that `spark.master` is of."""
        if self.master == "yarn":
            return Manager.YARN
        return Manager.KUBERNETES if self.master.startswith("k8s://") else Manager.STANDALONE

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        """The ResourceManagers that are named; empty where Hadoop's configuration says."""
        return tuple(one.strip().rstrip("/") for one in (self._address or "").split(",") if one.strip())
