"""The port of cluster managers that run deployments: plan one, apply it, say what became of it, end it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grete.deploy.deployment import Deployment


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """A plan for people, `text`, and for programs, `document`; neither holds a secret."""

    text: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt as the manager reports it. `logs` says where its logs are, `host` by what name others reach it."""

    number: int
    where: str
    since_ms: int
    state: str = ""
    logs: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """A container that runs in a place of its own, as the manager reports it."""

    container: str
    where: str
    since_ms: int
    state: str = ""
    logs: str = ""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployment as the manager reports it, in the manager's own words."""

    id: str
    state: str
    is_live: bool
    since_ms: int
    attempts: Sequence[AttemptRow] = ()
    detail: str = ""
    containers: Sequence[ContainerRow] = ()


class ClusterManager(ABC):
    """One cluster manager. Its calls are made from anywhere: all they need is the job's configuration."""

    @abstractmethod
    def plan(self, deployment: Deployment) -> DeploymentPlan:
        """What `apply` would send. Nothing is sent or written.

        Raises:
            ConfigError: a setting that the manager needs is missing or wrong.
        """

    def check(self, deployment: Deployment) -> None:
        """Let the manager look at what `apply` would send, where it can; nothing is made.

        Raises:
            GreteError: it would refuse; the message says why.
        """
        self.plan(deployment)

    @abstractmethod
    def apply(self, deployment: Deployment, *, replace: bool) -> Deployed:
        """Let the manager run it; returns when it has accepted the deployment, not when the job runs.

        A job has one deployment at a time: of two that are applied at once one is refused. `replace` ends the one
        that runs first.

        Raises:
            ConfigError: as `plan`, or a secret is not set here.
            JobError: the job is deployed already and not to be replaced, or the manager refused.
        """

    @abstractmethod
    def status(self, deployment: Deployment) -> list[Deployed]:
        """The deployments of the job that the manager still knows, the last one first.

        Raises:
            JobError: the manager does not answer.
        """

    @abstractmethod
    def kill(self, deployment: Deployment) -> list[str]:
        """End what runs of the job at once; returns the names of what was ended, when it has ended.

        Raises:
            JobError: the manager does not answer or refuses, or the end takes too long.
        """
