"""What `spark-submit` is given on YARN: archives and files by their names in working folders, and settings."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from grete.config.choices import ResourceType
from grete.config.places import has_scheme
from grete.config.settings import Settings
from grete.config.settings.deploy import Resource
from grete.config.settings.job import JobSettings
from grete.container.archive import pack
from grete.deploy import application_master
from grete.deploy.deployment import Deployment
from grete.deploy.launch_variables import launch_variables
from grete.deploy.places import ENVIRONMENT, FRAMEWORK, PACKAGE
from grete.errors import JobError
from grete.launch.spark_submit import find_spark_submit, spark_home
from grete.packages.manifest import PackageKind
from grete.packages.transport import archive_of, brought_package
from grete.packages.verify import read_manifest
from grete.private_files import private_opener
from grete.spark.session.kafka_connector import connector_settings
from grete.spark.session.libraries import output_settings
from grete.spark.session.worker_python import application_python

DEPLOYMENT = "deployment-"
_TAGS = "spark.yarn.tags"
_MAIN = Path(application_master.__file__)
_VARIABLE = "spark.yarn.appMasterEnv."
_DEFAULTS = {
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.yarn.am.attemptFailuresValidityInterval": "1h",
}
"""A job that runs for months would use up its attempts otherwise."""
_PACKAGES = (PackageKind.API.folder, FRAMEWORK)
_NOT_PASSED_ON = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def command(
    name: str,
    properties: Path,
    files: Sequence[str],
    archives: Mapping[str, str],
    words: Sequence[str],
) -> list[str]:
    """The words of `spark-submit` for our ApplicationMaster with `words`; nothing secret is in them.

    Raises:
        ConfigError, MissingExtra: no `spark-submit` where Spark is, or no Spark.
    """
    return [
        find_spark_submit(os.environ),
        *("--master", "yarn", "--deploy-mode", "cluster", "--name", name),
        *("--properties-file", str(properties)),
        *("--files", ",".join(files)),
        *(["--archives", ",".join(linked(archives))] if archives else []),
        str(_MAIN),
        *words,
    ]


def start(
    words: Sequence[str], hadoop_folder: Path, log: Path, *, user: str | None = None
) -> subprocess.Popen[bytes]:
    """Begin a submission; what it says is in `log`, of its owner only. `user` is of YARN, where it believes names.

    Raises:
        OSError: it cannot be begun, or the log cannot be written.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    environment |= {"HADOOP_CONF_DIR": str(hadoop_folder), "SPARK_HOME": str(spark_home(os.environ))}
    if user:
        environment.setdefault("HADOOP_USER_NAME", user)
    with open(log, "wb", opener=private_opener) as output:
        return subprocess.Popen(  # noqa: S603 - our own words, no shell
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def check_ended(code: int, log: Path) -> None:
    """See that a submission has ended well.

    Raises:
        JobError: it has not; with the end of its log.
    """
    if code != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise JobError(f"spark-submit ended with code {code}; {log} ends with\n{end}")


def archives(settings: Settings, folder: Path) -> dict[str, str]:
    """What is unpacked in each working folder, by its name there."""
    found = {}
    if settings.deploy.package:
        found[PACKAGE] = settings.deploy.package
    elif brought_package(settings.job) or settings.job.application_path:
        found[PACKAGE] = str(folder / "application-SHA256.tgz")
    if settings.deploy.environment:
        found[ENVIRONMENT] = _local_or_url(settings.deploy.environment)
    return found | _resources(settings, ResourceType.ARCHIVE)


def files_of(settings: Settings) -> dict[str, str]:
    """What is put into each working folder as it is, by its name there, besides what a deployment writes."""
    return _resources(settings, ResourceType.FILE)


def _resources(settings: Settings, of: ResourceType) -> dict[str, str]:
    return {each.name: _local_or_url(each.path) for each in settings.deploy.resources if _type(each) == of}


def _type(resource: Resource) -> ResourceType:
    """As it is said, else as in Samza, but for our packages, which are of no use as they are."""
    usual = ResourceType.ARCHIVE if resource.name in _PACKAGES else ResourceType.FILE
    return resource.type or usual


def linked(paths: Mapping[str, str]) -> list[str]:
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


def pack_application(job: JobSettings, folder: Path) -> Path:
    """The archive that is unpacked as `__package`."""
    if (package := brought_package(job)) is not None:
        return archive_of(package, read_manifest(package), folder)
    assert job.application_path is not None, "there is nothing to pack"
    return pack(Path(job.application_path), folder).path


def containers_tag(job: str) -> str:
    """The tag of all applications that are containers of a job; `job` is its deployed name."""
    return f"{job}-containers"


def deployment_tag(id_: str) -> str:
    """The tag of all applications of a deployment."""
    return f"{DEPLOYMENT}{id_}"


def tagged(options: Mapping[str, str], tags: Sequence[str]) -> dict[str, str]:
    """Settings of Spark with these tags before those that the job has asked for."""
    return {**options, _TAGS: ",".join(filter(None, (*tags, options.get(_TAGS, ""))))}


def properties(deployment: Deployment) -> dict[str, str]:
    """What Spark is submitted with: the job's settings for it, and jars that its plan needs."""
    settings = deployment.settings
    variables = _launch_variables(settings) | application_python(settings.job, is_local=False)
    options = {
        **_DEFAULTS,
        **{f"{_VARIABLE}{name}": value for name, value in variables.items()},
        "spark.pyspark.python": _interpreter(settings),
        **settings.spark.options,
    }
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
