"""Settings that are understood but whose work is not built: refused, rather than silently without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from grete.config import aliases
from grete.config.choices import LauncherChoice, SizingPolicy
from grete.config.key_tables import autosizing, job, task
from grete.config.places import place_of, without_user
from grete.config.settings import Settings
from grete.config.settings.deploy import Manager
from grete.config.settings.streams import side_inputs
from grete.config.values import valid_value_of
from grete.errors import ConfigError

_PYTHON_FILES = "spark.submit.pyFiles"
_ARCHIVES = (".tgz", ".tar.gz", ".tar", ".zip", ".pex", ".whl", ".egg")
_SHARED_STORES = ("s3", "gs", "gcs", "abfs", "webhdfs")


def unsupported(config: Mapping[str, str]) -> Iterator[str]:
    """Each setting that this version cannot obey, with the way out."""
    yield from _standby(config)
    matcher = config.get("job.systemstreampartition.matcher.class")
    if matcher:
        yield (
            f"job.systemstreampartition.matcher.class={matcher!r}: this version has no matchers, and the "
            f"job would read every partition; remove the key, and name streams that hold what the job shall read"
        )
    yield from _isolation(config)
    yield from _side_inputs(config)
    yield from _autosizing(config)
    yield from _copies(config)
    yield from _snapshots(config)
    if _launcher(config) == "thread" and config.get("job.container.count", "1").strip() != "1":
        yield (
            "job.launcher=thread runs one container only, since one process has one Spark; set job.launcher=process "
            "to run all of them, or deploy the job again with that count, on YARN or Kubernetes"
        )
    launcher, manager = _launcher(config), Settings.of(config).deploy.manager
    if launcher == LauncherChoice.KUBERNETES and manager is not Manager.KUBERNETES:
        yield (
            "job.launcher=kubernetes: containers are pods where spark.master=k8s://... says so; set that and use "
            "grete deploy, or set job.launcher=process"
        )
    if launcher == LauncherChoice.YARN and manager is not Manager.YARN:
        yield (
            "job.launcher=yarn: containers are applications where spark.master=yarn says so; set that and use "
            "grete deploy, or set job.launcher=process"
        )
    mode = config.get("spark.submit.deployMode", "client").strip()
    if _launcher(config) == "spark_submit" and mode != "client":
        yield (
            f"spark.submit.deployMode={mode}: a container is a driver on its coordinator's machine, and asks it over "
            f"loopback; remove the key, or let grete deploy run coordinator and container on YARN or Kubernetes"
        )


def _snapshots(config: Mapping[str, str]) -> Iterator[str]:
    key = job.SNAPSHOT_DIR.name
    place = place_of(config.get(key, ""))
    if isinstance(place, Path):
        return
    shown = f"{key}={without_user(place)}"
    if place.partition(":")[0] not in _SHARED_STORES:
        yield (
            f"{shown}: workers reach folders, object stores (s3://, gs://, abfs://) and HDFS by its web port "
            f"(webhdfs://NAMENODE:9870/PATH); name one of these, or mount what is there as a folder"
        )
    elif not place.partition("://")[2].partition("?")[0].rpartition("@")[2].partition("/")[0]:
        yield f"{shown}: it names no bucket, container or NameNode"
    elif place.startswith("abfs://") and "@" in place:
        yield f"{shown}: write abfs://CONTAINER/PATH; the account is that of azure.storage.connect"
    elif place.startswith("abfs://") and (problem := Settings.of(config).azure.connect_problem):
        yield f"{shown}: {problem}"


def _side_inputs(config: Mapping[str, str]) -> Iterator[str]:
    settings = Settings.of(config)
    with suppress(ConfigError):  # a stream without a system is named elsewhere
        for store, streams in side_inputs(config).items():
            key, named = f"stores.{store}.side.inputs", ", ".join(map(str, streams))
            if settings.job.is_pipeline:
                yield (
                    f"{key}: a DataFrame pipeline has no stores; remove the key, add {named} to task.inputs, and "
                    f"join it in build"
                )
            elif settings.job.ssp_grouper.endswith("GroupBySystemStreamPartitionFactory"):
                alone = [str(stream) for stream in streams if stream in settings.task.inputs]
                if alone:
                    yield (
                        f"{key}: with GroupBySystemStreamPartitionFactory a partition of {', '.join(alone)} is a "
                        f"task of its own, and fills a store that no other has; name its partitions in "
                        f"task.broadcast.inputs, such as {alone[0]}#[0-3], or group by partition"
                    )


def _copies(config: Mapping[str, str]) -> Iterator[str]:
    settings = Settings.of(config)
    if config.get(task.INPUTS_ENDS.name, "").strip():
        try:
            _ = settings.task.ends
        except ConfigError as error:
            yield str(error)


def _autosizing(config: Mapping[str, str]) -> Iterator[str]:
    settings, key = Settings.of(config), autosizing.AUTOSIZING_POLICY.name
    if valid_value_of(config, autosizing.AUTOSIZING_POLICY) != SizingPolicy.LAG:
        return
    if not valid_value_of(config, autosizing.AUTOSIZING):
        yield f"{key}=lag without {autosizing.AUTOSIZING.name}=true: set that too, or remove {key}"
    bounds = autosizing.AUTOSIZING_LEAST, autosizing.AUTOSIZING_MOST
    if settings.job.is_pipeline:
        yield from _autosized_executors(settings, key)
        bounds = autosizing.AUTOSIZING_LEAST_EXECUTORS, autosizing.AUTOSIZING_MOST_EXECUTORS
    elif _launcher(config) in ("thread", "processors"):
        yield (
            f"{key}=lag: the coordinator starts no containers here; set job.launcher=process (of a deployment "
            f"kubernetes or yarn), or remove {key}"
        )
    least, most = (valid_value_of(config, bound) for bound in bounds)
    if least is not None and most is not None and least > most:
        yield (
            f"{bounds[0].name}={least} is more than {bounds[1].name}={most}: no size is in between; "
            f"change one of them"
        )


def _autosized_executors(settings: Settings, key: str) -> Iterator[str]:
    """A pipeline has one container, and what can grow are its executors."""
    if settings.spark.is_local:
        yield (
            f"{key}=lag: a pipeline grows by executors, and spark.master={settings.spark.master} has none; name a "
            f"cluster there, or remove {key}"
        )
    if settings.spark.decides_executors:
        yield (
            f"{key}=lag: Spark decides by itself how many executors there are "
            f"(spark.dynamicAllocation.enabled=true); remove one of the two"
        )
    if settings.job.container_count > 1:
        yield (
            f"{key}=lag: what grows of a pipeline are the executors of one container, and "
            f"{job.CONTAINER_COUNT.name} is {settings.job.container_count}; remove one of the two"
        )
    if settings.autosizing.most_executors is None:
        most = autosizing.AUTOSIZING_MOST_EXECUTORS.name
        yield f"{key}=lag of a pipeline needs {most}: the most executors that it may get"


def _standby(config: Mapping[str, str]) -> Iterator[str]:
    replicas = config.get("job.standbytasks.replication.factor", "1").strip()
    if not replicas.isdigit() or int(replicas) <= 1:
        return
    what = f"job.standbytasks.replication.factor={replicas}"
    if "app.class" in config:
        yield f"{what}: a DataFrame pipeline keeps its state in Spark, which has no standby; remove the key"
    elif not Settings.of(config).store_names:
        yield f"{what}: the job has no stores, so there is nothing to keep copies of; remove the key"
    if _launcher(config) in ("thread", "processors"):
        yield f"{what}: standby containers are processes of their own; set job.launcher=process"


def _isolation(config: Mapping[str, str]) -> Iterator[str]:
    settings, key = Settings.of(config), job.SPLIT_DEPLOYMENT.name
    if not valid_value_of(config, job.SPLIT_DEPLOYMENT):
        return
    if config.get(_PYTHON_FILES, "").strip():
        yield (
            f"{_PYTHON_FILES} with {key}=true: Spark would let the framework's processes import from these files; "
            f"put what is in them into {job.APPLICATION_PATH.name} or {job.APPLICATION_ENVIRONMENT.name}"
        )
    environment = settings.job.application_environment or ""
    if environment.endswith(_ARCHIVES):
        yield (
            f"{job.APPLICATION_ENVIRONMENT.name}={environment} is an archive, and has to be a folder with "
            f"bin/python: unpack it at the same path on every machine (one of conda-pack is completed by its "
            f"bin/conda-unpack), or make a package with grete package build application and name its folder, "
            f"which is brought to every machine"
        )
    if settings.task.max_concurrency > 1:
        yield (
            f"{key}=true: an application with a process of its own has one message of a task in progress at a time; "
            f"remove task.max.concurrency, or the key"
        )


def _launcher(config: Mapping[str, str]) -> str:
    named = valid_value_of(config, job.LAUNCHER) if job.LAUNCHER.name in config else None
    return named or aliases.canonical(aliases.LAUNCHERS, config.get(job.FACTORY.name, ""))
