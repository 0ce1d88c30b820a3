"""The checks of `grete doctor`, one function each, which returns its finding and the way out."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from grete.cli.doctor_application import application_findings
from grete.cli.doctor_kafka import kafka_findings
from grete.errors import ConfigError, GreteError, StreamError
from grete.finding import Finding
from grete.model.ids import SystemStream
from grete.registry import known_plugins, load_object
from grete.spark import probe as spark

if TYPE_CHECKING:
    from grete.config.settings import Settings
    from grete.systems.base import System

_FIRST_SAFE_SQLITE = (3, 51, 3)
_FREE_MB = 200
PROBES = {
    "zookeeper": "grete.coordination.zookeeper.probe:findings",
    "kubernetes": "grete.coordination.kubernetes.probe:findings",
    "azure": "grete.coordination.azure_probe:findings",
    "grete.checkpoint.azure-table": "grete.checkpoint.azure_table_probe:findings",
}
"""A function from Settings to findings, by the name of a back end; plug-ins are entry points of `grete.probes`."""
_PROBES = "grete.probes"
_JAVA_TIMEOUT_S = 60


def python() -> Finding:
    """The interpreter."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(
        "python", sys.version_info >= (3, 11), f"{version}, {sys.executable}", "install Python 3.11 or newer"
    )


def java() -> Finding:
    """Java 17 or newer, with the module that Spark's launcher asks for (small runtimes lack it)."""
    way_out = "install Java 17 or newer and put it on PATH, or set JAVA_HOME"
    command = _java_command()
    if command is None:
        return Finding("java", False, "not found", way_out)
    try:
        shown = _output(command, "-version")
        modules = _output(command, "--list-modules")
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("java", False, f"{command}: {error}", way_out)
    found = f"{shown.splitlines()[0]}, {command}"
    match = re.search(r'version "(\d+)', shown)
    if match is None or int(match[1]) < 17:
        return Finding("java", False, found, way_out)
    if "jdk.incubator.vector" not in modules:
        return Finding("java", False, f"{found}, without jdk.incubator.vector", "install a complete runtime")
    return Finding("java", True, found)


def _java_command() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else shutil.which("java")


def _output(*command: str) -> str:
    done = subprocess.run(  # noqa: S603 - the java that Spark will run, no shell
        command, capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=True
    )
    return done.stderr + done.stdout


def sqlite() -> Finding:
    """The SQLite that apsw brings; the interpreter's own is not used."""
    import apsw

    version = apsw.sqlite_lib_version()
    safe = tuple(map(int, version.split("."))) >= _FIRST_SAFE_SQLITE
    return Finding(
        "sqlite", safe, version, "install apsw 3.54 or newer: older builds can corrupt a WAL database"
    )


def _environment(interpreter: str) -> tuple[Path, Path]:
    """`python`, `python3` and `python3.11` of one folder are one; a virtual environment's links lead to its base."""
    return Path(interpreter).absolute().parent, Path(interpreter).resolve()


def worker_python() -> Finding:
    """Executors must run this interpreter, or they miss packages."""
    named = os.environ.get("PYSPARK_PYTHON")
    path = None if named is None else shutil.which(named)
    same = named is None or (path is not None and _environment(path) == _environment(sys.executable))
    found = named or f"not set, so executors run {sys.executable}"
    return Finding("PYSPARK_PYTHON", same, found, f"unset it, or set it to {sys.executable}")


def loopback() -> Finding:
    """The coordinator serves on a free port of the loopback address."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
    except OSError as error:
        return Finding("ports", False, f"127.0.0.1: {error}", "allow processes to listen on 127.0.0.1")
    return Finding("ports", True, f"127.0.0.1 can be listened on (tried {port})")


def home() -> Finding:
    """GRETE_HOME: on a local file system, writable, with space."""
    from grete.environment import grete_home
    from grete.sqlite_file import open_file

    path = grete_home()
    probe = path / "doctor" / str(os.getpid()) / "probe.db"
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    try:
        open_file(probe).close()
    except (GreteError, OSError) as error:
        return Finding(
            "GRETE_HOME", False, f"{path}: {error}", "set GRETE_HOME to a local folder that you can write to"
        )
    finally:
        shutil.rmtree(path / "doctor", ignore_errors=True)
    free_mb = shutil.disk_usage(existing).free // 2**20
    found = f"{path}, {free_mb:,} MB free"
    return Finding("GRETE_HOME", free_mb >= _FREE_MB, found, f"free at least {_FREE_MB} MB")


MACHINE: tuple[Callable[[], Finding], ...] = (
    python,
    java,
    sqlite,
    spark.packages,
    worker_python,
    loopback,
    home,
)


def job_findings(settings: Settings) -> Iterator[Finding]:
    """A configuration as a whole, its inputs, and the port it asks for."""
    from grete.config.rules.validate import validate

    try:
        warnings = validate(settings.raw)
    except ConfigError as error:
        for problem in error.problems:
            yield Finding("config", False, problem, "correct the configuration")
        return
    yield Finding("config", True, f"{len(settings.raw)} keys are valid")
    for warning in warnings:
        yield Finding("config", True, f"warning: {warning}")
    yield from spark.findings(settings)
    yield from application_findings(settings.job)
    yield from _secrets(settings.raw)
    yield from _back_ends(settings)
    of_kafka = list(kafka_findings(settings))
    yield from of_kafka
    yield from _inputs(
        settings, {finding.check.removeprefix("kafka ") for finding in of_kafka if not finding.ok}
    )
    yield from spark.connector(settings.spark)
    if settings.coordinator.http_port:
        yield _port(settings.coordinator.http_host, settings.coordinator.http_port)


def _back_ends(settings: Settings) -> Iterator[Finding]:
    """What the back ends that the job chose say of themselves."""
    from grete.coordination.factory import election_name

    for name in (election_name(settings), settings.task.checkpoint_store):
        if name in PROBES or name in known_plugins(_PROBES):
            yield from load_object(_PROBES, name, built_in=PROBES, used_by="grete doctor")(settings)


def _secrets(config: Mapping[str, str]) -> Iterator[Finding]:
    """Whether what references refer to is here; nothing of it is shown."""
    from grete.config.secrets import has_reference, resolve_secrets

    for key, value in sorted(config.items()):
        if not has_reference(value):
            continue
        try:
            resolve_secrets(value)
        except ConfigError as error:
            yield Finding("secret", False, f"{key}: {error}", "set the variable here, or put the file there")
        else:
            yield Finding("secret", True, f"{key} refers to what is there")


def _port(host: str, port: int) -> Finding:
    """Whether the configured port of the coordinator is free; 0, the default, takes any that is."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        way_out = "is the job running? Else set job.http.port to a free port, or remove it"
        return Finding("job.http.port", False, f"{port}: {error.strerror}", way_out)
    return Finding("job.http.port", True, f"{port} is free")


def _inputs(settings: Settings, away: Collection[str]) -> Iterator[Finding]:
    """Whether the inputs are there; a system that cannot be opened is one finding, however many inputs it has.

    Systems in `away` are known not to answer, and not asked again.
    """
    from grete.clock import SystemClock
    from grete.environment import grete_home
    from grete.systems.factory import open_system

    inputs = settings.task.all_inputs
    for name in sorted({stream.system for stream in inputs} - set(away)):
        try:
            with closing(open_system(settings, name, grete_home(), SystemClock())) as system:
                for stream in (each for each in inputs if each.system == name):
                    yield _input(system, stream)
        except GreteError as error:
            yield Finding(f"system {name}", False, str(error), f"check systems.{name}.*, and that it runs")


def _input(system: System, stream: SystemStream) -> Finding:
    try:
        return Finding("input", True, f"{stream} has {system.partition_count(stream.stream)} partitions")
    except StreamError as error:
        return Finding("input", False, str(error), f"grete stream create {stream} --partitions N")
