"""Containers as applications of YARN: how the coordinator submits one, and what the ResourceManager says of it.

An application is found by its tags: one that all containers of the job have, one of the deployment, and its name.
What a deployment has brought was staged for the coordinator's own application, and stays as long as that: containers
take it from there, whatever machine the coordinator is on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from grete.clock import Clock
from grete.config.properties import format_properties, parse_properties
from grete.deploy import yarn_submission as submission
from grete.deploy.managed_containers import (
    INCARNATION_NAME,
    ManagedContainer,
    ManagedContainers,
    ManagedEnd,
    incarnation_name,
)
from grete.deploy.places import CONFIG_FILE, CONTAINER_FILE, SECRETS_FILE
from grete.deploy.resource_manager import ResourceManager, YarnApplication
from grete.environment import CONTAINER_EPOCH
from grete.errors import ConfigError, GreteError, JobError
from grete.failpoints import failpoint
from grete.launch.base import ContainerStart
from grete.model.ids import ContainerId
from grete.private_files import private_directory, write_private
from grete.text_logs import shortened

STAGED_FILE = Path("__spark_conf__", "__spark_dist_cache__.properties")
"""In the working folder of an ApplicationMaster: where Spark has put what was brought, for all of its machines."""
HADOOP_FOLDER = Path("__spark_conf__", "__hadoop_conf__")
"""There, too: the configuration of Hadoop that the application was submitted with."""
_STAGED = "spark.yarn.cache.filenames"
_LIBRARIES = "__spark_libs__"
_ARCHIVE, _JARS = "spark.yarn.archive", "spark.yarn.jars"
_BROUGHT = (
    "spark.jars",
    "spark.files",
    "spark.archives",
    "spark.submit.pyFiles",
    "spark.yarn.dist.jars",
    "spark.yarn.dist.files",
    "spark.yarn.dist.archives",
    "spark.yarn.dist.pyFiles",
)
"""Settings that name files of the machine that has deployed the job."""
_AT_ONCE = 2
"""Submissions: each is a JVM of 300 MB for five seconds."""
_SUBMIT_S = 300.0
_LOOK_S = 2.0
"""The ResourceManager tells nobody that something has changed."""
_NODES_S = 10.0
"""So often it is asked for nodes that go."""
_USER = "SPARK_USER"
"""Whose the coordinator's application is; its processes may be a NodeManager's user's."""
_EXITED = re.compile(r"User application exited with status (\d+)")
_LONGEST = 2_000
_NOT_BEGUN = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED")
"""States of an application, begun only where it has a host as well."""
_COMES = "waiting for AM container"


class ContainerTemplate(Struct, frozen=True):
    """By what a deployment's containers are submitted; `shown` is the job, and `job` its deployed name."""

    shown: str
    job: str
    deployment: str
    properties: dict[str, str]
    archives: dict[str, str]
    files: dict[str, str]
    has_secrets: bool

    def as_json(self) -> str:
        """As it is in its file."""
        return json.dumps(msgspec.to_builtins(self), indent=1)

    @classmethod
    def read(cls, path: Path) -> ContainerTemplate:
        """From the file.

        Raises:
            ConfigError: it cannot be read, or is none.
        """
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"cannot read {path}, by which containers are submitted: {error}") from error

    def staged(self, folder: Path) -> ContainerTemplate:
        """With the places where the coordinator's own application has all that was brought.

        Raises:
            ConfigError: Spark does not say where these are.
        """
        path = folder / STAGED_FILE
        try:
            listed = parse_properties(path.read_text(), origin=str(path)).get(_STAGED, "")
        except OSError as error:
            raise ConfigError(f"cannot read {path}, where Spark says what was brought: {error}") from error
        there = {}
        for place in filter(None, listed.split(",")):
            where, _, name = place.partition("#")
            there[name or where.rpartition("/")[2]] = where
        found = {key: _where_staged(key, value, there) for key, value in self.properties.items()}
        if _LIBRARIES in there:
            found = {
                **{key: value for key, value in found.items() if key != _JARS},
                _ARCHIVE: there[_LIBRARIES],
            }
        return msgspec.structs.replace(
            self,
            properties=found,
            archives={name: there.get(name, where) for name, where in self.archives.items()},
            files={name: there.get(name, where) for name, where in self.files.items()},
        )


def _where_staged(key: str, value: str, there: Mapping[str, str]) -> str:
    if key not in _BROUGHT:
        return value
    found = []
    for one in value.split(","):
        where, mark, name = one.strip().partition("#")
        found.append(there.get(name or where.rpartition("/")[2], where) + mark + name)
    return ",".join(found)


@dataclass(frozen=True, slots=True)
class TaggedContainer:
    """Which incarnation of which container an application is, and of which deployment."""

    name: str
    deployment: str
    container: ContainerId
    epoch: int


def incarnation_of(application: YarnApplication) -> TaggedContainer | None:
    """By the tags of the application; None for one that is no container's."""
    named = (match for tag in application.tags if (match := INCARNATION_NAME.fullmatch(tag)))
    found = [match for match in named if submission.containers_tag(match[1]) in application.tags]
    deployments = [
        tag.removeprefix(submission.DEPLOYMENT)
        for tag in application.tags
        if tag.startswith(submission.DEPLOYMENT)
    ]
    if not found or not deployments:
        return None
    return TaggedContainer(found[0][0], deployments[0], ContainerId(found[0][2]), int(found[0][3]))


@dataclass(slots=True)
class ContainerApplications(ManagedContainers):
    """See ManagedContainers: applications of one attempt, submitted from the working folder of the coordinator's."""

    template: ContainerTemplate
    manager: ResourceManager
    folder: Path
    clock: Clock
    kind = "application"
    _submitted: dict[str, _Submission] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _going: frozenset[str] = frozenset()
    _going_until_s: float = float("-inf")

    @classmethod
    def of(cls, template: Path, manager: ResourceManager, clock: Clock) -> ContainerApplications:
        """Of the coordinator that works in the folder of the template.

        Raises:
            ConfigError: it is none, or Spark does not say what was brought.
        """
        folder = template.absolute().parent
        return cls(ContainerTemplate.read(template).staged(folder), manager, folder, clock)

    def name(self, start: ContainerStart) -> str:
        """See ManagedContainers: it is a tag of the application."""
        return incarnation_name(self.template.job, start)

    def create(self, start: ContainerStart) -> str:
        """See ManagedContainers. `spark-submit` is let run beside."""
        name = self.name(start)
        under_way = self._submitted.get(name)
        if under_way is None:
            if len(self._submitted) < _AT_ONCE:
                self._submitted[name] = self._submit(name, start)
            return ""
        code = under_way.process.poll()
        if code is None and self.clock.monotonic_s() < under_way.until_s:
            return ""
        there = self.read(name)  # it may have succeeded, whatever became of spark-submit
        del self._submitted[name]
        if there is not None:
            failpoint("launch.started")
            return there.uid
        under_way.end()
        submission.check_ended(1 if code is None else code, under_way.log)
        raise JobError(f"spark-submit has ended, and YARN knows no application of {name}")

    def withdraw(self, name: str) -> None:
        """See ManagedContainers."""
        under_way = self._submitted.pop(name, None)
        if under_way is not None:
            under_way.end()

    def _submit(self, name: str, start: ContainerStart) -> _Submission:
        folder, template = self.folder / "containers" / name, self.template
        told = {**start.environment, CONTAINER_EPOCH: str(start.epoch)}
        words = ["--config", CONFIG_FILE, "--container", CONTAINER_FILE]
        own = [str(self.folder / CONFIG_FILE), str(folder / CONTAINER_FILE)]
        if template.has_secrets:
            own.append(str(self.folder / SECRETS_FILE))
            words += ["--secrets", SECRETS_FILE]
        tags = (name, submission.containers_tag(template.job), submission.deployment_tag(template.deployment))
        properties = submission.tagged(template.properties, tags) | {"spark.yarn.maxAppAttempts": "1"}
        file, log = folder / "spark.properties", folder / "submit.log"
        try:
            private_directory(folder)
            write_private(folder / CONTAINER_FILE, json.dumps(told))
            write_private(file, format_properties(properties))
            command = submission.command(
                f"grete {template.shown} container {start.container_id}",
                file,
                [*own, *submission.linked(template.files)],
                template.archives,
                words,
            )
            process = submission.start(command, self.folder / HADOOP_FOLDER, log, user=os.environ.get(_USER))
        except OSError as error:
            raise JobError(f"cannot submit {name} from {folder}: {error}") from error
        return _Submission(process, log, self.clock.monotonic_s() + _SUBMIT_S)

    def read(self, name: str) -> ManagedContainer | None:
        """See ManagedContainers."""
        return next((one for one in self._look(name) if one.name == name), None)

    def seen(self) -> tuple[Sequence[ManagedContainer], str]:
        """See ManagedContainers; a sight has no version."""
        if self.clock.monotonic_s() >= self._going_until_s:
            self._going_until_s = self.clock.monotonic_s() + _NODES_S
            with suppress(GreteError):  # who may not ask for nodes sees his containers nevertheless
                self._going = self.manager.decommissioned()
        found = self._look(submission.containers_tag(self.template.job))
        self._ended = {one.uid for one in found if one.end is not None}
        return found, ""

    def _look(self, tag: str) -> list[ManagedContainer]:
        found = ((incarnation_of(one), one) for one in self.manager.find(tag))
        return [
            _managed(incarnation, one, self._going)
            for incarnation, one in found
            if incarnation is not None and incarnation.deployment == self.template.deployment
        ]

    def watch(self, version: str, watch_s: float) -> None:
        """See ManagedContainers."""
        self.clock.wait(threading.Event(), min(watch_s, _LOOK_S))

    def remove(self, name: str, uid: str, grace_s: int) -> None:
        """See ManagedContainers: how long a process has for its end is YARN's own setting."""
        if uid not in self._ended:
            self.manager.kill(uid)

    def close(self) -> None:
        """See ManagedContainers. What a submission has begun is the next coordinator's to see."""
        for name in tuple(self._submitted):
            self.withdraw(name)


@dataclass(frozen=True, slots=True)
class _Submission:
    process: subprocess.Popen[bytes]
    log: Path
    until_s: float

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def _managed(incarnation: TaggedContainer, one: YarnApplication, going: frozenset[str]) -> ManagedContainer:
    waits_for = (one.diagnostics or "").strip() if one.state == "ACCEPTED" else ""
    return ManagedContainer(
        incarnation.name,
        one.id,
        incarnation.container,
        incarnation.epoch,
        one.host,
        bool(one.host) or one.state not in _NOT_BEGUN,
        None if one.is_live else _end_of(one),
        sent_away=f"node {one.host} is decommissioned" if one.am_host_http_address in going else "",
        waits_for="" if _COMES in waits_for else shortened(waits_for, _LONGEST),
    )


def _end_of(one: YarnApplication) -> ManagedEnd:
    """Spark says the code of a program that has ended before it, above 128 a signal's, as a shell does; of any other
    nobody has seen the end.
    """
    said = shortened((one.diagnostics or "").strip(), _LONGEST)
    if one.final_status == "SUCCEEDED":
        return ManagedEnd(0)
    if exited := _EXITED.search(said):
        code = int(exited[1])
        return ManagedEnd(128 - code if code > 128 else code)
    return ManagedEnd(None, said=f"{one.id} {one.final_status.lower()}: {said or 'YARN does not say why'}")
