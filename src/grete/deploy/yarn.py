"""Deployments on YARN: `spark-submit` in cluster mode.

The ApplicationMaster is coordinator and container, or the coordinator alone, which submits an application for each
container (`container_applications`).
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grete.clock import Deadline, SystemClock
from grete.config.properties import format_properties
from grete.config.redact import redact
from grete.deploy import yarn_submission as submission
from grete.deploy.base import AttemptRow, ClusterManager, ContainerRow, Deployed, DeploymentPlan
from grete.deploy.container_applications import ContainerTemplate, incarnation_of
from grete.deploy.deployment import Deployment
from grete.deploy.places import CONFIG_FILE, CONTAINER_APPLICATION_FILE, PACKAGE, SECRETS_FILE
from grete.deploy.resource_manager import (
    ResourceManager,
    YarnApplication,
    YarnAttempt,
    find_resource_manager,
    hadoop_folder,
)
from grete.errors import JobError
from grete.private_files import private_directory, write_private

_SUBMIT_S = 300.0
_END_S = 60.0
_POLLS_S = (0.2, 1.0)
_SPARK_FILE = "spark.properties"
_OF_CONTAINERS = f"{CONTAINER_APPLICATION_FILE}, by which the coordinator submits each container"
_ALONE = {
    "spark.driver.memory": "512m",
    "spark.executor.instances": "1",
    "spark.dynamicAllocation.enabled": "false",
}
"""Of a coordinator alone: its Spark rests and gets no executor."""
_OF_THE_COORDINATOR = {
    "spark.driver.memoryOverhead": ("spark.yarn.am.memory", "1g"),
    "spark.driver.cores": ("spark.yarn.am.cores", "1"),
}
"""By settings that Spark has for client mode alone. Beside its JVM is a `spark-submit` for each container."""


@dataclass(frozen=True, slots=True)
class YarnPlan:
    """What `apply` does: the files that it writes, and its command. Secrets are in the private files alone.

    `containers` is by what the coordinator submits each container, where these are applications of their own.
    """

    command: Sequence[str]
    properties: Mapping[str, str]
    config: Mapping[str, str]
    archives: Mapping[str, str]
    files: Mapping[str, str]
    secrets: tuple[str, ...]
    hadoop_folder: Path
    containers: ContainerTemplate | None


def yarn_plan(deployment: Deployment) -> YarnPlan:
    """The plan of a deployment. Nothing is written.

    Raises:
        ConfigError: no configuration of Hadoop, or no spark-submit where Spark is.
        MissingExtra: no Spark on this machine.
    """
    settings = deployment.settings
    archives, files = submission.archives(settings, deployment.folder), submission.files_of(settings)
    own = [CONFIG_FILE, *([SECRETS_FILE] if deployment.secrets else [])]
    words = ["--manager", "yarn", "--config", CONFIG_FILE]
    words += ["--secrets", SECRETS_FILE] if deployment.secrets else []
    settings_of_spark, template = submission.properties(deployment), None
    tags = (deployment.name, submission.deployment_tag(deployment.id))
    properties = submission.tagged(settings_of_spark, tags)
    if deployment.has_managed_containers:
        own.append(CONTAINER_APPLICATION_FILE)
        template = ContainerTemplate(
            deployment.job.shown,
            deployment.name,
            deployment.id,
            settings_of_spark,
            archives,
            files,
            has_secrets=bool(deployment.secrets),
        )
        asked = {key: properties.get(name, usual) for key, (name, usual) in _OF_THE_COORDINATOR.items()}
        properties |= _ALONE | asked
    command = submission.command(
        f"grete {deployment.job.shown}",
        deployment.folder / _SPARK_FILE,
        [*(str(deployment.folder / name) for name in own), *submission.linked(files)],
        archives,
        [*words, *deployment.words],
    )
    return YarnPlan(
        command,
        properties,
        settings.raw,
        archives,
        files,
        deployment.secrets,
        hadoop_folder(settings.deploy),
        template,
    )


class Yarn(ClusterManager):
    """See ClusterManager. Applications are found by a tag with the job's name."""

    def plan(self, deployment: Deployment) -> DeploymentPlan:
        """See ClusterManager."""
        plan = yarn_plan(deployment)
        spark, config = redact(plan.properties), redact(plan.config)
        containers = {} if plan.containers is None else redact(plan.containers.properties)
        shown = [
            f"HADOOP_CONF_DIR={shlex.quote(str(plan.hadoop_folder))} {shlex.join(plan.command)}",
            *_listing(_SPARK_FILE, spark),
            *_listing(CONFIG_FILE, config),
            *(f"\n# {SECRETS_FILE}, private: {', '.join(plan.secrets)}" for _ in plan.secrets[:1]),
            *(() if plan.containers is None else _listing(_OF_CONTAINERS, containers)),
        ]
        document = {
            "manager": "yarn",
            "hadoop": str(plan.hadoop_folder),
            "command": list(plan.command),
            "spark": spark,
            "config": config,
            "archives": dict(plan.archives),
            "files": dict(plan.files),
            "secrets": list(plan.secrets),
            "containers": dict(containers),
        }
        return DeploymentPlan("\n".join(shown), document)

    def apply(self, deployment: Deployment, *, replace: bool) -> Deployed:
        """See ClusterManager."""
        plan = yarn_plan(deployment)
        secrets = deployment.secret_values(os.environ)
        manager = find_resource_manager(deployment.settings.deploy)
        live = [one for one in manager.find(deployment.name) if one.is_live]
        if live and not replace:
            raise _deployed_already(deployment, live[0])
        _end_all(manager, deployment, live)
        _submit(deployment, plan, secrets)
        found = _submitted(manager, deployment)
        tag = submission.deployment_tag(deployment.id)
        own = next((one for one in found if tag in one.tags), None)
        if own is None:
            raise JobError(f"spark-submit has ended, and YARN knows no application of {tag}")
        before = next((one for one in found if one.is_live and one.order < own.order), None)
        if before is not None:  # two deployments at once: the first goes on
            manager.kill(own.id)
            raise _deployed_already(deployment, before)
        return _deployed(own, (), {})

    def status(self, deployment: Deployment) -> list[Deployed]:
        """See ClusterManager."""
        manager = find_resource_manager(deployment.settings.deploy)
        found = manager.find(deployment.name)
        rows: dict[str, list[ContainerRow]] = {}
        for one in manager.find(submission.containers_tag(deployment.name)):
            incarnation = incarnation_of(one)
            if incarnation is not None:
                rows.setdefault(incarnation.deployment, []).append(_container_row(one, incarnation.container))
        for of_one in rows.values():
            of_one.sort(key=lambda row: (int(row.container), row.since_ms))
        return [_deployed(one, manager.attempts(one.id), rows) for one in reversed(found)]

    def kill(self, deployment: Deployment) -> list[str]:
        """See ClusterManager."""
        manager = find_resource_manager(deployment.settings.deploy)
        live = [one for one in manager.find(deployment.name) if one.is_live]
        return _end_all(manager, deployment, live)


def _listing(name: str, values: Mapping[str, str]) -> list[str]:
    return [f"\n# {name}", *(f"{key}={value}" for key, value in sorted(values.items()))]


def _submitted(manager: ResourceManager, deployment: Deployment) -> list[YarnApplication]:
    try:
        return manager.find(deployment.name)
    except JobError as error:
        raise JobError(
            f"the application was submitted, and whether it is the job's only one could not be asked; look with "
            f"grete deploy status: {error}"
        ) from error


def _state(one: YarnApplication) -> str:
    return one.state if one.final_status in ("", "UNDEFINED") else f"{one.state} {one.final_status}"


def _container_row(one: YarnApplication, container: str) -> ContainerRow:
    where = f"{one.id} on {one.host or 'no node yet'}"
    return ContainerRow(container, where, one.started_time, _state(one).lower(), one.am_container_logs or "")


def _deployed(
    one: YarnApplication, attempts: Sequence[YarnAttempt], containers: Mapping[str, Sequence[ContainerRow]]
) -> Deployed:
    rows = [
        AttemptRow(
            each.id,
            f"{each.container_id} on {each.node_id}",
            each.start_time,
            logs=each.logs_link or "",
            host=(each.node_id or "").rpartition(":")[0],
        )
        for each in attempts
    ]
    own = [row for tag in one.tags for row in containers.get(tag.removeprefix(submission.DEPLOYMENT), ())]
    said = (one.diagnostics or "").strip()
    return Deployed(one.id, _state(one), one.is_live, one.started_time, rows, said, own)


def _deployed_already(deployment: Deployment, running: YarnApplication) -> JobError:
    return JobError(
        f"job {deployment.job.shown} is deployed as {running.id} ({running.state}, by {running.user}); stop it with "
        "grete stop, or let this deployment take its place with --replace"
    )


def _submit(deployment: Deployment, plan: YarnPlan, secrets: Mapping[str, str]) -> None:
    folder, settings = deployment.folder, deployment.settings
    words, log = list(plan.command), folder / "submit.log"
    try:
        private_directory(folder)
        write_private(folder / CONFIG_FILE, format_properties(plan.config))
        write_private(folder / _SPARK_FILE, format_properties(plan.properties))
        if plan.containers is not None:
            write_private(folder / CONTAINER_APPLICATION_FILE, plan.containers.as_json())
        if secrets:
            write_private(folder / SECRETS_FILE, json.dumps(secrets))
    except OSError as error:
        raise JobError(f"cannot write what is sent to {folder}, nothing was sent: {error}") from error
    if not settings.deploy.package and PACKAGE in plan.archives:
        packed = str(submission.pack_application(settings.job, folder))
        words = [word.replace(plan.archives[PACKAGE], packed) for word in words]
    with submission.start(words, plan.hadoop_folder, log) as process:
        try:
            code = process.wait(_SUBMIT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise JobError(
                f"YARN has not accepted the application within {_SUBMIT_S:g} s; see {log}"
            ) from error
    submission.check_ended(code, log)


def _end_all(
    manager: ResourceManager, deployment: Deployment, coordinators: Sequence[YarnApplication]
) -> list[str]:
    """Kill applications with the containers that they have submitted; returns all, once they have ended.

    A coordinator first: it would start its containers again.
    """
    _end(manager, coordinators, deployment.name)
    tag = submission.containers_tag(deployment.name)
    containers = [one for one in manager.find(tag) if one.is_live]
    _end(manager, containers, tag)
    return [one.id for one in (*coordinators, *containers)]


def _end(manager: ResourceManager, applications: Sequence[YarnApplication], tag: str) -> None:
    ids = {one.id for one in applications}
    for id_ in sorted(ids):
        manager.kill(id_)
    deadline = Deadline(SystemClock(), _END_S, pauses_s=_POLLS_S)
    while left := [one.id for one in manager.find(tag) if one.is_live and one.id in ids] if ids else []:
        if not deadline.pause():
            raise JobError(
                f"YARN was asked to kill {', '.join(left)}, which has not ended within {_END_S:g} s"
            )
