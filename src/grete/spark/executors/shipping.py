"""The application and what else executors on other machines need of this one: archives, and the way to secrets.

On a local master nothing is shipped: executors see this machine. Elsewhere the folder of `job.application.path`
travels as an archive named by its content (`container.archive`), which Spark hands to each executor once and unpacks
in its working folder. Python workers have that folder on their path, so that modules of StreamTasks, serdes and
functions of pipelines are found as on the driver; shares also work in it.

An environment of the application's own that `grete package build` made travels as its archive, too; that one Spark
does not unpack, since it would for each executor and each start: the first worker of a machine does
(`packages.transport`). Any other environment has to be there already.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pyspark import SparkContext, SparkFiles

from grete.config.key_tables.job import APPLICATION_ENVIRONMENT, APPLICATION_PATH, SPLIT_DEPLOYMENT
from grete.config.secret_channel import VARIABLE as SECRETS
from grete.config.secrets import for_executors
from grete.config.settings import Settings
from grete.config.settings.job import JobSettings
from grete.container.archive import Archive, pack, prune
from grete.container.secret_server import SecretServer
from grete.errors import ConfigError, PackageError
from grete.packages.manifest import PackageKind
from grete.packages.transport import archive_of, brought, brought_package
from grete.packages.verify import read_manifest
from grete.private_files import private_directory
from grete.spark.executors.application_interpreter import ApplicationPlace, program
from grete.spark.executors.preflight_probe import code_of
from grete.spark.session.worker_python import ON_EXECUTORS

_PATH = "PYTHONPATH"
_secrets: dict[str, SecretServer] = {}
"""By Spark's application, of which a process has one at a time: shares that are left behind may still ask."""
_programs: dict[str, str] = {}
"""What was shipped to evaluate a pipeline's functions, by Spark's application."""


@dataclass(frozen=True, slots=True)
class ShippedPackage:
    """The application's environment as executors get it: an archive among Spark's files, unpacked below `into`.

    Without `into` it is a folder that is there already: the cluster manager has unpacked it, or it is in the image.
    """

    file: str
    digest: str
    into: str | None = None

    def folder(self) -> str:
        """In a worker: the unpacked package, compared once in each process. See `unpack_once`.

        Raises:
            PackageError: it cannot be unpacked there, or is not what was sent.
        """
        return _unpacked(self)


@dataclass(frozen=True, slots=True)
class Shipped:
    """The application's folder as executors have it: `name` in the folder of Spark's files; None without a folder.

    `code` is the hash of the driver's grete, empty where executors are on its machine. `package` is the application's
    environment; None where it is not brought.
    """

    name: str | None = None
    code: str = ""
    package: ShippedPackage | None = None

    def environment_here(self) -> str | None:
        """In a worker: the application's environment, where it was brought. To be asked for before `enter`.

        Raises:
            PackageError: see `ShippedPackage.folder`.
        """
        return None if self.package is None else self.package.folder()

    def enter(self) -> str | None:
        """In a worker: the application's folder there, in which it works from now on.

        Raises:
            ConfigError: the machine has another grete, which came after the look at all executors.
        """
        if self.code and _code() != self.code:
            raise ConfigError(
                f"{socket.gethostname()} has another grete (code {_code()}) than the driver (code {self.code}): "
                f"install the same one there"
            )
        if self.name is None:
            return None
        folder = _place_of(self.name)
        if Path.cwd() != Path(folder):
            sys.path[:] = [os.path.abspath(place) if place else place for place in sys.path]
            os.chdir(folder)
        return folder


NOTHING = Shipped()


@cache
def _unpacked(package: ShippedPackage) -> str:
    into = None if package.into is None else Path(package.into)
    return str(brought(Path(_place_of(package.file)), package.digest, into))


@cache
def _code() -> str:
    """Of this process's grete."""
    return code_of("grete")


def _place_of(name: str) -> str:
    return os.path.join(_sparks_files(), name)


@cache
def _sparks_files() -> str:
    """Where a worker finds Spark's files: kept, for Spark names the folder relative to one that the worker leaves."""
    return os.path.abspath(str(SparkFiles.getRootDirectory()))


def ship(context: SparkContext, settings: Settings, folder: Path) -> Shipped:
    """Give executors the application and the way to secrets, where they do not share this machine. `folder` is for
    archives.

    May be called again for a configuration that changed while the application of Spark goes on.

    Raises:
        ConfigError: the application cannot be packed.
        PackageError: its environment cannot.
    """
    if settings.spark.is_local:
        return NOTHING
    _offer_secrets(context, settings)
    shipped = replace(
        _ship_modules(context, settings, folder), package=_ship_package(context, settings, folder)
    )
    if settings.job.is_isolated and settings.job.is_pipeline:
        _ship_interpreter(context, settings.job, shipped)
    return shipped


def _ship_modules(context: SparkContext, settings: Settings, folder: Path) -> Shipped:
    path = settings.job.application_path
    if path is None:
        return Shipped(code=_code())
    if Path(path).is_file() and settings.job.is_isolated:
        raise ConfigError(
            f"{APPLICATION_PATH.name}={path} is a file: with {SPLIT_DEPLOYMENT.name}=true executors need "
            f"the folder of the modules"
        )
    if Path(path).is_file():
        context.addPyFile(path)  # an archive of modules, which Python imports from as it is
        return Shipped(code=_code())
    archive = pack(Path(path), folder)
    add_archive(context, archive)
    if settings.job.is_isolated:
        return Shipped(archive.name, _code())  # on the path of the application's own process alone
    places = [archive.name, *context.environment.get(_PATH, "").split(os.pathsep)]
    context.environment[_PATH] = os.pathsep.join(dict.fromkeys(filter(None, places)))
    return Shipped(archive.name, _code())


def _ship_package(context: SparkContext, settings: Settings, folder: Path) -> ShippedPackage | None:
    """Give executors the application's environment; None where it is no package, and so is on every machine.

    Raises:
        PackageError: it is a package of something else, or cannot be read.
    """
    package = brought_package(settings.job)
    if package is None:
        return None
    manifest = read_manifest(package)
    if manifest.kind is not PackageKind.APPLICATION:
        raise PackageError(
            f"{APPLICATION_ENVIRONMENT.name}={package} is a package of the {manifest.kind}, not of an application: "
            f"name one that `grete package build application` made"
        )
    if (place := _place_everywhere(context, package)) is not None:
        return ShippedPackage(place, manifest.digest)
    archive = _plain_file(archive_of(package, manifest, folder / "packages"), folder / "packages")
    if not any(known.endswith(f"/{archive.name}") for known in context.listFiles):
        context.addFile(str(archive))
    return ShippedPackage(archive.name, manifest.digest, str(folder / "environments"))


def _ship_interpreter(context: SparkContext, job: JobSettings, shipped: Shipped) -> None:
    """Give executors the program that evaluates a pipeline's functions, in their working folder, where it is named.

    Raises:
        ConfigError: another one was shipped, whose processes Spark keeps.
    """
    package = shipped.package
    place = ApplicationPlace(
        environment=job.application_environment if package is None else package.file,
        digest="" if package is None else package.digest,
        into=None if package is None else package.into,
        modules=shipped.name,
    )
    text = program(str(context.pythonExec), place)
    known = _programs.setdefault(str(context.applicationId), text)
    if known != text:
        raise ConfigError(
            f"{APPLICATION_PATH.name} or {APPLICATION_ENVIRONMENT.name} has changed, and Spark goes on with "
            f"processes that have what was there before: start the job again"
        )
    if not any(one.endswith(f"/{ON_EXECUTORS}") for one in context.listFiles):
        made = Path(SparkFiles.getRootDirectory(), "programs", ON_EXECUTORS)  # goes when the driver ends
        private_directory(made.parent)
        made.write_text(text)
        context.addFile(str(made))


def _plain_file(archive: Path, into: Path) -> Path:
    """The archive under a name that Spark leaves alone: it unpacks each `.tgz` among its files in the working folder
    of each executor.
    """
    made = into / f"{archive.stem}.package"
    if not made.is_file():
        private_directory(into)
        temporary = made.with_name(f"{made.name}.{os.getpid()}.tmp")
        shutil.copyfile(archive, temporary)
        temporary.replace(made)
    os.utime(made)
    prune(into, "grete-*.package")
    return made


def _place_everywhere(context: SparkContext, package: Path) -> str | None:
    """Where each process finds the package without us: YARN has unpacked it in all working folders, this one too, and
    a driver in a pod has it from its image, which is its executors' as well. None where it has to be brought.
    """
    conf = context.getConf()
    master, mode = conf.get("spark.master") or "", conf.get("spark.submit.deployMode")
    if (master, mode) == ("yarn", "cluster") and package.name == PackageKind.APPLICATION.folder:
        return package.name
    if master.startswith("k8s://") and conf.get("spark.kubernetes.driver.pod.name"):
        return str(package.resolve())
    return None


def add_archive(context: SparkContext, archive: Archive) -> None:
    """Let each executor unpack the archive under its name, before its next task, once however often it is added."""
    if not any(archive.name in known for known in context.listArchives):
        context.addArchive(f"{archive.path}#{archive.name}")


def _offer_secrets(context: SparkContext, settings: Settings) -> None:
    """Serve what the references that executors may meet stand for, if there are any."""
    if not for_executors(settings.raw):
        return
    own = str(context.applicationId)
    if own not in _secrets:
        for earlier in list(_secrets):
            _secrets.pop(earlier).close()
        host, bind = driver_addresses(context)
        _secrets[own] = SecretServer(settings.raw, host, bind)
        context.environment[SECRETS] = str(_secrets[own].address)
    _secrets[own].config = settings.raw


@cache
def driver_addresses(context: SparkContext) -> tuple[str, str]:
    """What executors call the driver's machine, and where it listens. To read it takes 15 ms."""
    conf = context.getConf()
    host = conf.get("spark.driver.host") or ""
    return host, conf.get("spark.driver.bindAddress") or host
