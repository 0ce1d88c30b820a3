"""A deployment: a job's configuration with what a cluster manager needs besides, checked before anything is sent."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grete.assembly.submission import RunOptions, submitted_settings
from grete.clock import SystemClock
from grete.config.choices import LauncherChoice
from grete.config.derived import canonical_keys
from grete.config.key_tables.coordinator import YARN_PACKAGE, YARN_RESOURCE
from grete.config.key_tables.deploy import ENVIRONMENT
from grete.config.key_tables.job import APPLICATION_PATH, LAUNCHER
from grete.config.key_tables.streams import SPARK_MASTER
from grete.config.load import load
from grete.config.secrets import variables
from grete.config.settings import Settings
from grete.config.settings.deploy import Manager
from grete.errors import ConfigError
from grete.model.ids import JobId
from grete.packages.transport import brought_package

_OF_THEIR_OWN = {Manager.KUBERNETES: LauncherChoice.KUBERNETES, Manager.YARN: LauncherChoice.YARN}
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST = 30
_BROUGHT_BY_YARN = (ENVIRONMENT.name, YARN_PACKAGE.name)
_DIGEST = 10
_FILE = re.compile(r"\$\{file:(?P<path>[^{}]+)\}")


def deployed_name(job: JobId) -> str:
    """The job's name for cluster managers: a legal tag and DNS label that can be read, and that no other job has."""
    plain = _NOT_IN_NAMES.sub("-", job.shown.lower())[:_LONGEST].strip("-")
    digest = hashlib.sha256(job.shown.encode()).hexdigest()[:_DIGEST]
    return "-".join(part for part in ("grete", plain, digest) if part)


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment of a job. `id` is new with each; attempts of one share it.

    `settings` are what the first attempt submits. `secrets` are the environment variables that they refer to; their
    values are not in them. `folder` holds the files that are sent, on the machine that deploys.
    """

    job: JobId
    id: str
    settings: Settings
    secrets: tuple[str, ...]
    folder: Path
    options: RunOptions = field(repr=False)

    @property
    def name(self) -> str:
        """See `deployed_name`."""
        return deployed_name(self.job)

    @property
    def has_managed_containers(self) -> bool:
        """Whether each container is a pod or an application of its own, and not in the coordinator's process."""
        return self.settings.job.launcher in _OF_THEIR_OWN.values()

    @property
    def words(self) -> list[str]:
        """The words behind the name of the program that an attempt is (`grete.deploy.attempt`)."""
        reason = ["--reason", self.options.reason] if self.options.reason else []
        return [*(["--until-drained"] if self.options.until_drained else []), *reason]

    def secret_values(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables that the configuration refers to, with their values here.

        Raises:
            ConfigError: some are not set; names all of them.
        """
        missing = [name for name in self.secrets if name not in environment]
        if missing:
            raise ConfigError(
                f"the configuration refers to the environment variables {', '.join(missing)}, which are not set "
                "here: set them for grete deploy, which hands their values over by a private file"
            )
        return {name: environment[name] for name in self.secrets}


def prepare(options: RunOptions, home: Path) -> Deployment:
    """The deployment that the options describe. Nothing is written or sent.

    Raises:
        ConfigError: the configuration is wrong, or the job cannot be deployed with it; every problem at once.
    """
    settings = submitted_settings(options, home, SystemClock())
    problems = _problems(settings) if settings.deploy.manager is not Manager.STANDALONE else []
    if problems:
        raise ConfigError(*problems)
    # rewriters are applied by the first attempt, which may see other streams
    config = canonical_keys(load(options.config_paths, {**options.config, **options.overrides}))
    job = settings.job.id
    return Deployment(
        job,
        uuid.uuid4().hex[:_DIGEST],
        Settings.of({**config, LAUNCHER.name: _launcher(settings)}),
        tuple(variables(config)),
        home / "deployments" / f"{job.name}-{job.id}",
        options,
    )


def _launcher(settings: Settings) -> str:
    """One container is in its coordinator's process. Several have a place each, as has one for which that is asked,
    or of which the coordinator may make several.
    """
    own = _OF_THEIR_OWN.get(settings.deploy.manager)
    has_several = settings.autosizing.decides and not settings.job.is_pipeline
    is_asked = settings.job.launcher == own or has_several
    if own is not None and (is_asked or settings.job.container_count > 1):
        return own.value
    return LauncherChoice.THREAD.value


def _problems(settings: Settings) -> list[str]:
    manager = f"{SPARK_MASTER.name}={settings.deploy.master}"
    coordinator = settings.coordinator.system
    found = [
        f"{manager}: system {name!r} is files of one machine; a deployment needs inputs, outputs and the coordinator "
        f"stream on Kafka or Event Hubs"
        for name in sorted({coordinator, *settings.system_names})
        if settings.system(name).is_embedded
    ]
    found += [
        f"{key}: {match[0]} is a file of this machine, which a deployment does not bring; write ${{env:NAME}}, whose "
        f"value is handed over by a private file"
        for key, value in sorted(settings.raw.items())
        for match in _FILE.finditer(value)
        if Path(match["path"]).exists()
    ]
    if settings.job.application_path and brought_package(settings.job):
        found.append(
            f"{APPLICATION_PATH.name}: the modules are those of the package {settings.job.application_environment}; "
            f"build it with them, and remove this key"
        )
    if settings.deploy.manager is Manager.KUBERNETES:
        found += [
            f"{key}: {manager}: YARN alone brings it to where the job runs; put it into the image that "
            f"spark.kubernetes.container.image names, and remove the key"
            for key in sorted(settings.raw)
            if key in _BROUGHT_BY_YARN or YARN_RESOURCE.pattern.fullmatch(key)
        ]
    if settings.job.is_of_processors:
        found.append(
            f"{manager}: a job of stream processors is run by the processes that join it, not deployed"
        )
    return found
