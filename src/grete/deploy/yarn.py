"""Deployments on YARN: `spark-submit` in cluster mode, so that the ApplicationMaster is coordinator and container."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grete.clock import Deadline, SystemClock
from grete.config.choices import ResourceType
from grete.config.places import has_scheme
from grete.config.properties import format_properties
from grete.config.redact import redact
from grete.config.settings import Settings
from grete.config.settings.deploy import Resource
from grete.config.settings.job import JobSettings
from grete.container.archive import pack
from grete.deploy import application_master
from grete.deploy.base import AttemptRow, ClusterManager, Deployed, DeploymentPlan
from grete.deploy.deployment import Deployment
from grete.deploy.launch_variables import launch_variables
from grete.deploy.places import (
    CONFIG_FILE,
    ENVIRONMENT,
    FRAMEWORK,
    PACKAGE,
    SECRETS_FILE,
)
from grete.deploy.resource_manager import (
    ResourceManager,
    YarnApplication,
    YarnAttempt,
    find_resource_manager,
    hadoop_folder,
)
from grete.errors import JobError
from grete.launch.spark_submit import find_spark_submit, spark_home
from grete.packages.manifest import PackageKind
from grete.packages.transport import archive_of, brought_package
from grete.packages.verify import read_manifest
from grete.private_files import private_directory, private_opener
from grete.spark.session.kafka_connector import connector_settings
from grete.spark.session.libraries import output_settings
from grete.spark.session.worker_python import application_python

_SUBMIT_S = 300.0
_END_S = 60.0
_POLLS_S = (0.2, 1.0)
_MAIN = Path(application_master.__file__)
_SPARK_FILE = "spark.properties"
_TAGS = "spark.yarn.tags"
_VARIABLE = "spark.yarn.appMasterEnv."
_DEFAULTS = {
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.yarn.am.attemptFailuresValidityInterval": "1h",
}
"""A job that runs for months would use up its attempts otherwise."""
_PACKAGES = (PackageKind.API.folder, FRAMEWORK)
_NOT_PASSED_ON = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@dataclass(frozen=True, slots=True)
class YarnPlan:
    """What `apply` does: the files that it writes, and its command. Secrets are in the private files alone."""

    command: tuple[str, ...]
    properties: Mapping[str, str]
    config: Mapping[str, str]
    archives: Mapping[str, str]
    files: Mapping[str, str]
    secrets: tuple[str, ...]
    hadoop_folder: Path


def yarn_plan(deployment: Deployment) -> YarnPlan:
    """The plan of a deployment. Nothing is written.

    Raises:
        ConfigError: no configuration of Hadoop, or no spark-submit where Spark is.
        MissingExtra: no Spark on this machine.
    """
    settings = deployment.settings
    archives, files = _archives(settings, deployment.folder), _files(settings)
    own = [CONFIG_FILE, *([SECRETS_FILE] if deployment.secrets else [])]
    words = ["--manager", "yarn", "--config", CONFIG_FILE]
    words += ["--secrets", SECRETS_FILE] if deployment.secrets else []
    command = [
        find_spark_submit(os.environ),
        *("--master", "yarn", "--deploy-mode", "cluster", "--name", f"grete {deployment.job.shown}"),
        *("--properties-file", str(deployment.folder / _SPARK_FILE)),
        *("--files", ",".join([*(str(deployment.folder / name) for name in own), *_linked(files)])),
        *(["--archives", ",".join(_linked(archives))] if archives else []),
        str(_MAIN),
        *words,
        *deployment.words,
    ]
    return YarnPlan(
        tuple(command),
        _properties(deployment),
        settings.raw,
        archives,
        files,
        deployment.secrets,
        hadoop_folder(settings.deploy),
    )


def _archives(settings: Settings, folder: Path) -> dict[str, str]:
    """What is unpacked in each working folder, by its name there."""
    found = {}
    if settings.deploy.package:
        found[PACKAGE] = settings.deploy.package
    elif brought_package(settings.job) or settings.job.application_path:
        found[PACKAGE] = str(folder / "application-SHA256.tgz")
    if settings.deploy.environment:
        found[ENVIRONMENT] = _local_or_url(settings.deploy.environment)
    return found | _resources(settings, ResourceType.ARCHIVE)


def _files(settings: Settings) -> dict[str, str]:
    """What is put into each working folder as it is, by its name there, besides what a deployment writes."""
    return _resources(settings, ResourceType.FILE)


def _resources(settings: Settings, of: ResourceType) -> dict[str, str]:
    return {each.name: _local_or_url(each.path) for each in settings.deploy.resources if _type(each) == of}


def _type(resource: Resource) -> ResourceType:
    """As it is said, else as in Samza, but for our packages, which are of no use as they are."""
    usual = ResourceType.ARCHIVE if resource.name in _PACKAGES else ResourceType.FILE
    return resource.type or usual


def _linked(paths: Mapping[str, str]) -> list[str]:
    """As Spark takes paths with names of their own."""
    return [f"{path}#{name}" for name, path in paths.items()]


def _local_or_url(path: str) -> str:
    return path if has_scheme(path) else str(Path(path).absolute())


def _interpreter(settings: Settings) -> str:
    """The Python of coordinator, container and workers, as it is named in their working folders."""
    if settings.deploy.environment:
        return f"./{ENVIRONMENT}/bin/python"
    is_brought = FRAMEWORK in _resources(settings, ResourceType.ARCHIVE)
    return f"./{FRAMEWORK}/bin/python" if is_brought else sys.executable


def _pack_application(job: JobSettings, folder: Path) -> Path:
    """The archive that is unpacked as `__package`."""
    if (package := brought_package(job)) is not None:
        return archive_of(package, read_manifest(package), folder)
    assert job.application_path is not None, "there is nothing to pack"
    return pack(Path(job.application_path), folder).path


def _properties(deployment: Deployment) -> dict[str, str]:
    """What Spark is submitted with: the job's settings for it, tags, and jars that its plan needs."""
    settings = deployment.settings
    variables = _launch_variables(settings) | application_python(settings.job, is_local=False)
    options = {
        **_DEFAULTS,
        **{f"{_VARIABLE}{name}": value for name, value in variables.items()},
        "spark.pyspark.python": _interpreter(settings),
        **settings.spark.options,
    }
    tags = [deployment.name, _own_tag(deployment), *settings.spark.yarn_tags]
    options[_TAGS] = ",".join(tags)
    jars = spark_home(os.environ) / "jars"
    if settings.job.is_pipeline:
        names = (name for name in settings.system_names if settings.system(name).capabilities.spark_connector)
        if (kafka := next(names, None)) is not None:
            fetched = settings.system(kafka).connector_jars
            version = importlib.metadata.version("pyspark")
            options |= connector_settings(options, fetched, spark_version=version, spark_jars=jars)
    return options | output_settings(settings, options, jars)


def _launch_variables(settings: Settings) -> dict[str, str]:
    """What the ApplicationMaster has to know before it can read the configuration (S4-5, S4-33)."""
    job = settings.job
    is_package = brought_package(job) or (job.is_isolated and settings.deploy.package)
    return launch_variables(job, f"./{PACKAGE}/lib" if is_package else f"./{PACKAGE}")


def _own_tag(deployment: Deployment) -> str:
    return f"deployment-{deployment.id}"


class Yarn(ClusterManager):
    """See ClusterManager. Applications are found by a tag with the job's name."""

    def plan(self, deployment: Deployment) -> DeploymentPlan:
        """See ClusterManager."""
        plan = yarn_plan(deployment)
        spark, config = redact(plan.properties), redact(plan.config)
        shown = [
            f"HADOOP_CONF_DIR={shlex.quote(str(plan.hadoop_folder))} {shlex.join(plan.command)}",
            *_listing(_SPARK_FILE, spark),
            *_listing(CONFIG_FILE, config),
            *(f"\n# {SECRETS_FILE}, private: {', '.join(plan.secrets)}" for _ in plan.secrets[:1]),
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
        for one in live:
            _end(manager, deployment, one)
        _submit(deployment, plan, secrets)
        found = _submitted(manager, deployment)
        own = next((one for one in found if _own_tag(deployment) in one.tags), None)
        if own is None:
            raise JobError(f"spark-submit has ended, and YARN knows no application of {_own_tag(deployment)}")
        before = next((one for one in found if one.is_live and one.order < own.order), None)
        if before is not None:  # two deployments at once: the first goes on
            manager.kill(own.id)
            raise _deployed_already(deployment, before)
        return _deployed(own, ())

    def status(self, deployment: Deployment) -> list[Deployed]:
        """See ClusterManager."""
        manager = find_resource_manager(deployment.settings.deploy)
        return [_deployed(one, manager.attempts(one.id)) for one in reversed(manager.find(deployment.name))]

    def kill(self, deployment: Deployment) -> list[str]:
        """See ClusterManager."""
        manager = find_resource_manager(deployment.settings.deploy)
        live = [one for one in manager.find(deployment.name) if one.is_live]
        for one in live:
            _end(manager, deployment, one)
        return [one.id for one in live]


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


def _deployed(one: YarnApplication, attempts: Sequence[YarnAttempt]) -> Deployed:
    state = one.state if one.final_status in ("", "UNDEFINED") else f"{one.state} {one.final_status}"
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
    return Deployed(one.id, state, one.is_live, one.started_time, rows, (one.diagnostics or "").strip())


def _deployed_already(deployment: Deployment, running: YarnApplication) -> JobError:
    return JobError(
        f"job {deployment.job.shown} is deployed as {running.id} ({running.state}, by {running.user}); stop it with "
        "grete stop, or let this deployment take its place with --replace"
    )


def _submit(deployment: Deployment, plan: YarnPlan, secrets: Mapping[str, str]) -> None:
    folder, settings = deployment.folder, deployment.settings
    command = list(plan.command)
    try:
        private_directory(folder)
        _write(folder / CONFIG_FILE, format_properties(plan.config))
        _write(folder / _SPARK_FILE, format_properties(plan.properties))
        if secrets:
            _write(folder / SECRETS_FILE, json.dumps(secrets))
    except OSError as error:
        raise JobError(f"cannot write what is sent to {folder}, nothing was sent: {error}") from error
    if not settings.deploy.package and PACKAGE in plan.archives:
        packed = str(_pack_application(settings.job, folder))
        command = [word.replace(plan.archives[PACKAGE], packed) for word in command]
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    environment |= {"HADOOP_CONF_DIR": str(plan.hadoop_folder), "SPARK_HOME": str(spark_home(os.environ))}
    log = folder / "submit.log"
    try:
        with open(log, "wb", opener=private_opener) as output:
            done = subprocess.run(  # noqa: S603 - our own words, no shell
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_SUBMIT_S,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise JobError(f"YARN has not accepted the application within {_SUBMIT_S:g} s; see {log}") from error
    if done.returncode != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise JobError(f"spark-submit ended with code {done.returncode}; {log} ends with\n{end}")


def _write(path: Path, text: str) -> None:
    with open(path, "w", opener=private_opener) as file:
        file.write(text)


def _end(manager: ResourceManager, deployment: Deployment, application: YarnApplication) -> None:
    """Kill an application and wait until it has ended."""
    manager.kill(application.id)
    deadline = Deadline(SystemClock(), _END_S, pauses_s=_POLLS_S)
    while any(one.is_live for one in manager.find(deployment.name) if one.id == application.id):
        if not deadline.pause():
            raise JobError(
                f"YARN was asked to kill {application.id}, which has not ended within {_END_S:g} s"
            )
