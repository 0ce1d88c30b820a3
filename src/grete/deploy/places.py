"""Names that a deployment and its attempts agree on: files and folders in the place where an attempt runs."""

from __future__ import annotations

from grete.packages.manifest import PackageKind

PACKAGE = PackageKind.APPLICATION.folder
"""The application, unpacked in the working folder (Samza's name)."""
FRAMEWORK = PackageKind.FRAMEWORK.folder
"""The environment of coordinator, container and workers, where it is a package."""
ENVIRONMENT = "environment"
"""The unpacked environment."""
CONFIG_FILE = "job.properties"
SECRETS_FILE = "grete-secrets.json"
CONTAINER_POD_FILE = "container-pod.json"
"""Beside the configuration: the pod in which the coordinator starts each container, where these are pods."""
CONTAINER_APPLICATION_FILE = "container-application.json"
"""Beside the configuration, on YARN: by what the coordinator submits each container, where these are applications."""
CONTAINER_FILE = "container.json"
"""Of one container: the environment that it is told."""
EPOCH_ID = "SAMZA_EPOCH_ID"
