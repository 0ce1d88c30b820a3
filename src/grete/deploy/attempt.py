"""One attempt of a deployment: coordinator and container in this process, which a cluster manager started.

    python -m grete.deploy.attempt --manager yarn|kubernetes --config FILE [--secrets FILE] [--until-drained]

The first attempt submits the configuration, later ones go on with the coordinator stream's: the environment says
which deployment it is (YARN's CONTAINER_ID, SAMZA_EPOCH_ID elsewhere). The manager's SIGTERM ends this process and
not the job: another attempt may follow.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grete import __version__
from grete.assembly.run import run_job
from grete.assembly.stop_signals import StopSignals
from grete.assembly.submission import OpenLauncher, RunOptions
from grete.clock import SystemClock
from grete.config.key_tables.job import APPLICATION_ENVIRONMENT, APPLICATION_PATH
from grete.config.load import load
from grete.config.log_levels import log_levels, set_levels
from grete.config.settings import Settings
from grete.config.settings.deploy import Manager
from grete.coordination.base import Coordination, Leadership
from grete.coordination.kubernetes.access import find_access
from grete.coordination.kubernetes.api_server import ApiServer
from grete.coordinator.events import Event, StepDownRequested
from grete.deploy.namespace import JobNamespace
from grete.deploy.places import CONTAINER_APPLICATION_FILE, CONTAINER_POD_FILE, PACKAGE
from grete.environment import APPLICATION_LIB, HOME, POD_IP
from grete.errors import ConfigError, GreteError, PackageError
from grete.launch.base import Launcher
from grete.launch.factory import LaunchContext
from grete.packages.manifest import PackageKind, is_package
from grete.packages.verify import read_manifest
from grete.text_logs import log_to_stderr, printable

_log = logging.getLogger("grete.coordinator")
_TERMINATED = 128 + signal.SIGTERM
_REST_S = 3600.0
_CALL_S = 5.0
"""Of the API server, whom the coordinator's loop asks for containers."""


class ManagersSignals:
    """Implements `assembly.stop_signals.Requests`: signals of a cluster manager end this process, not the job."""

    def __init__(self) -> None:
        self._signals = StopSignals()

    @property
    def on_request(self) -> Callable[[], None]:
        """See Requests."""
        return self._signals.on_request

    @on_request.setter
    def on_request(self, call: Callable[[], None]) -> None:
        self._signals.on_request = call

    @property
    def have_come(self) -> bool:
        """Whether there was any."""
        return self._signals.have_come

    def listen(self) -> None:
        """See Requests."""
        self._signals.listen()

    def requests(self, deadline_s: float) -> Iterator[Event]:
        """See Requests."""
        for stop in self._signals.requests(deadline_s):
            yield StepDownRequested(f"{stop.reason} of the cluster manager", ends_process=True)

    def again(self) -> bool:
        """See Requests. The job goes on without this process."""
        return False

    def wait(self, timeout_s: float) -> bool:
        """See Requests."""
        return self._signals.wait(timeout_s)


def main(arguments: Sequence[str]) -> int:
    """Run the attempt; returns the exit code, 143 when it was asked to end before the job did."""
    given = _parse(arguments)
    log_to_stderr(os.environ.get("GRETE_LOG_LEVEL", "INFO"))
    logging.getLogger("py4j").setLevel(logging.WARNING)
    os.environ.setdefault(HOME, str(Path.cwd() / "home"))
    signals = ManagersSignals()
    try:
        set_up(given.secrets)
        managed = _managed(given.manager, given.config.parent)
        place = place_of(given.manager, os.environ, Path.cwd()) if managed is None else application_in(Path())
        options = RunOptions(
            [str(given.config)],
            until_drained=given.until_drained,
            reason=given.reason,
            place=place,
            open_launcher=None if managed is None else managed.open_launcher,
            reached_at="" if managed is None else managed.reached_at,
        )
        if given.manager is Manager.YARN:
            settings = Settings.of(load(options.config_paths, place))
            start_spark(settings) if managed is None else _hold_application(settings)
        code = run_job(options, signals=signals)
    except GreteError as error:
        print(f"grete: {printable(str(error))}", file=sys.stderr, flush=True)
        code = error.exit_code
    except OSError as error:
        print(f"grete: {printable(str(error))}", file=sys.stderr, flush=True)
        code = 1
    if signals.have_come:
        return _TERMINATED
    if code == 0 and given.manager is Manager.KUBERNETES:
        _rest(signals)
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m grete.deploy.attempt")
    parser.add_argument("--manager", type=Manager, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--secrets", type=Path)
    parser.add_argument("--until-drained", action="store_true")
    parser.add_argument("--reason", default="")
    return parser.parse_args(arguments)


def set_up(secrets: Path | None) -> None:
    """What a process of a deployment does first: log as its application says, take its secrets, look at its packages.

    Raises:
        ConfigError, PackageError: a file that was brought cannot be read, or is of another version.
    """
    set_levels(log_levels(os.environ.get(APPLICATION_LIB)))
    if secrets is not None:
        os.environ.update(variables_of(secrets, "the secrets of this deployment"))
    check_packages(Path.cwd())


def variables_of(path: Path, what: str) -> dict[str, str]:
    """Variables that were brought in a file, by their names.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        found: dict[str, str] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}, {what}: {error}") from error
    return found


def place_of(manager: Manager, environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The settings that follow from where an attempt runs: its application's folder, and on YARN its address.

    A pod's address is in its environment, whichever of the job's pods it is (`grete.spark.session.settings`).
    """
    found: dict[str, str] = {}
    if manager is Manager.YARN and (host := environment.get("NM_HOST")):
        found |= {"spark.driver.host": host, "spark.driver.bindAddress": host}
    return found | application_in(folder)


def application_in(folder: Path) -> dict[str, str]:
    """The settings of an application that was unpacked in a working folder.

    For a coordinator of containers elsewhere the folder is `Path()`: the settings are the same for each attempt, and
    no container is started again since the coordinator is in another folder than the one before.
    """
    package = folder / PACKAGE
    if is_package(package):
        return {APPLICATION_ENVIRONMENT.name: str(package)}
    if not package.is_dir():
        return {}
    return {APPLICATION_PATH.name: str(package.resolve() if folder.is_absolute() else package)}


def check_packages(folder: Path) -> None:
    """See that the framework's packages that were brought are of the version that runs, before anything is begun.

    An application's package may be of another one: it has nothing of the framework but what this process gives it.

    Raises:
        PackageError: they are not, or cannot be read.
    """
    for kind in (PackageKind.API, PackageKind.FRAMEWORK):
        if is_package(folder / kind.folder):
            found = read_manifest(folder / kind.folder).grete
            if found != __version__:
                raise PackageError(
                    f"{folder / kind.folder} was built by grete {found}, and grete {__version__} runs: build the "
                    f"packages again with one version, and deploy them together"
                )


def start_spark(settings: Settings) -> None:
    """Start the context while the coordinator begins; the container takes it over.

    YARN's ApplicationMaster waits for it for `spark.yarn.am.waitTime`, and reading a long coordinator stream and
    waiting for the lease of a dead attempt come before the container.
    """
    from grete.spark.session.container_session import start_context

    def start() -> None:
        try:
            start_context(settings)
        except GreteError as error:
            _log.error("Spark did not start, the container will try again: %s", error)

    threading.Thread(target=start, name="grete-spark", daemon=True).start()


def _hold_application(settings: Settings) -> None:
    """Give the ApplicationMaster of a coordinator alone the context that it waits for."""
    from grete.spark.session.idle import start_idle_context

    name = f"grete {settings.job.id.shown} coordinator"
    threading.Thread(target=start_idle_context, args=(name,), name="grete-spark", daemon=True).start()


@dataclass(frozen=True, slots=True)
class _Managed:
    """How a coordinator has containers that the cluster manager runs, and at what address they reach it."""

    open_launcher: OpenLauncher
    reached_at: str


def _managed(manager: Manager, folder: Path) -> _Managed | None:
    """By the file that the deployment has brought for it; None for a container in the coordinator's process."""
    match manager:
        case Manager.KUBERNETES if (template := folder / CONTAINER_POD_FILE).exists():
            return _Managed(partial(_open_pods, template), os.environ.get(POD_IP, ""))
        case Manager.YARN if (template := folder / CONTAINER_APPLICATION_FILE).exists():
            return _Managed(partial(_open_applications, template), own_host())
    return None


def own_host() -> str:
    """By what name YARN knows this machine."""
    return os.environ.get("NM_HOST") or socket.gethostname()


def _open_applications(
    template: Path, context: LaunchContext, coordination: Coordination, leadership: Leadership
) -> Launcher:
    """The launcher of containers that are applications of their own.

    Raises:
        ConfigError: see `ContainerApplications.of`, or where the ResourceManager is is not known.
    """
    from grete.deploy.container_applications import HADOOP_FOLDER, ContainerApplications
    from grete.deploy.managed_launcher import ManagedLauncher
    from grete.deploy.resource_manager import find_resource_manager

    hadoop = template.absolute().parent / HADOOP_FOLDER
    manager = find_resource_manager(context.settings.deploy, folder=hadoop, timeout_s=_CALL_S)
    applications = ContainerApplications.of(template, manager, SystemClock())
    return ManagedLauncher(applications, SystemClock(), leadership.epoch, context.last_words)


def _open_pods(
    template: Path, context: LaunchContext, coordination: Coordination, leadership: Leadership
) -> Launcher:
    """The launcher of containers that are pods of their own.

    Raises:
        GreteError: see `ContainerPods.of`.
    """
    from grete.deploy.container_pods import ContainerPods
    from grete.deploy.managed_launcher import ManagedLauncher

    access = find_access(context.settings.kubernetes)
    server = ApiServer(access, rights="the service account of the deployment may do it (docs/clusters.md)")
    namespace = JobNamespace(
        server, context.settings.spark.namespace or access.namespace or "default", _CALL_S
    )
    pods = ContainerPods.of(template, namespace, os.environ)
    return ManagedLauncher(pods, SystemClock(), leadership.epoch, context.last_words)


def _rest(signals: ManagersSignals) -> None:
    """Wait for the end of the pod: Kubernetes starts a process again that has ended, however it was."""
    signals.listen()
    _log.warning("the job has ended, and this pod rests until its deployment is replaced or killed")
    while not signals.wait(_REST_S):
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
