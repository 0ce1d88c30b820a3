"""A look at every executor before the first batch: what would fail there later is said now, with the executor's host.

Executors have to have grete and its packages, in the Python that `PYSPARK_PYTHON` or `spark.pyspark.python` names:
installed, or in an environment that `spark.archives` brings. Nothing of grete is shipped by itself, since half of
what it needs is compiled for a machine. On a local master there is nothing to look at.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import platform
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException

from grete.config.secrets import resolve_secrets
from grete.config.settings import Settings
from grete.config.settings.job import JobSettings
from grete.errors import ConfigError, GreteError, StreamUnreachable
from grete.spark.executors import preflight_probe
from grete.spark.executors.preflight_environment import EnvironmentHere, environment_there
from grete.spark.executors.preflight_probe import code_of, held, packages, probe, shares
from grete.spark.executors.shipping import NOTHING, Shipped
from grete.spark.failures.translation import job_failed
from grete.spark.session.executor_count import executors

_log = logging.getLogger("grete.container")
_ROUNDS = 6
"""A round has a task for each core; an executor whose core was busy is met in the next one."""
_HOLD_S = 0.2
_NAMED = 5
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXECUTOR = re.compile(r"\((\S+) executor (\S+)\)")
_NO_PYTHON = "Cannot run program"
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_seen: set[tuple[str, str]] = set()
"""Applications of Spark that were looked at, with what was asked."""


@dataclass(frozen=True, slots=True)
class Here:
    """The driver's side: what executors have to have."""

    python: str
    code: str
    packages: Mapping[str, str]
    needed: frozenset[str]

    @classmethod
    def find(cls) -> Here:
        """This process's."""
        required = importlib.metadata.requires("grete") or []
        names = {match[0].lower().replace("_", "-") for one in required if (match := _NAME.match(one))}
        found = packages()
        return cls(platform.python_version(), code_of("grete"), found, frozenset(names & set(found)))

    def problems(self, said: Mapping[str, Any]) -> list[str]:
        """What is wrong with an executor that says this, each with the way out."""
        problems = []
        if _minor(said["python"]) != _minor(self.python):
            problems.append(
                f"has Python {said['python']} ({said['executable']}), and the driver {self.python}: one does not "
                f"read what the other writes; name one of the same minor version (PYSPARK_PYTHON)"
            )
        if not said["code"]:
            problems.append(
                f"has no grete in {said['executable']}: install it there, or bring an environment that has it "
                f"(spark.archives)"
            )
        elif said["code"] != self.code:
            problems.append(
                f"has another grete ({_version(said['packages'])}, code {said['code']}) than the driver "
                f"({_version(self.packages)}, code {self.code}): install the same one"
            )
        if differ := self.differing(said["packages"], self.needed):
            problems.append(
                f"has other packages than the driver: {differ}; install those of the driver's lock"
            )
        return problems + ([f"cannot keep stores: {said['folder']}"] if said["folder"] else [])

    def differing(self, theirs: Mapping[str, str], names: frozenset[str]) -> str:
        """The packages of these names that are not the same there, in words."""
        found = sorted(name for name in names if theirs.get(name) != self.packages.get(name))
        shown = [
            f"{name} {theirs.get(name, 'missing')} (driver {self.packages.get(name, 'missing')})"
            for name in found
        ]
        return ", ".join(shown[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")


def environment_hash(installed: Mapping[str, str]) -> str:
    """The same for two environments with the same packages."""
    text = "\n".join(f"{name}=={version}" for name, version in sorted(installed.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_executors(
    context: SparkContext, settings: Settings, stores: Path | None, shipped: Shipped = NOTHING
) -> None:
    """Look at Python, grete, packages, brokers, the application's own environment and, for StreamTasks, the folder of
    `stores` on every executor, once.

    Raises:
        ConfigError: an executor lacks something; all of it, with hosts.
        StreamUnreachable: an executor does not reach the brokers.
        JobError: the tasks that look failed.
    """
    if settings.spark.is_local:
        return
    brokers = _brokers(settings)
    asked = {"brokers": brokers, "folder": None if stores is None else str(stores)}
    key = str(context.applicationId), repr((asked, shipped.package))
    if key in _seen:
        return
    found = _on_every_executor(context, lambda: probe(asked))
    here = Here.find()
    problems = [f"executor {_named(said)} {what}" for said in found for what in here.problems(said)]
    if problems:
        raise ConfigError(*problems)
    for said in found:
        if said["unreachable"]:
            raise StreamUnreachable(
                f"executor {_named(said)} does not reach {', '.join(said['unreachable'])}: open the way there, or "
                f"name addresses that executors reach too (advertised.listeners of the brokers)"
            )
        if environment_hash(said["packages"]) != environment_hash(here.packages):
            names = frozenset(said["packages"]) | frozenset(here.packages)
            _log.warning(
                "executor %s has another environment (hash %s) than the driver (%s): %s",
                *(_named(said), environment_hash(said["packages"]), environment_hash(here.packages)),
                here.differing(said["packages"], names),
            )
    _check_environment(context, settings.job, shipped)
    hosts = sorted({said["host"] for said in found})
    _log.info(
        "%d executors on %s have Python %s, grete %s and environment %s",
        *(len(found), ", ".join(hosts), here.python, here.code, environment_hash(here.packages)),
    )
    _seen.add(key)


def _check_environment(context: SparkContext, job: JobSettings, shipped: Shipped) -> None:
    named = job.application_environment
    if not job.is_isolated or named is None:
        return
    here = EnvironmentHere(named)
    found = _on_every_executor(context, lambda: environment_there(shipped, named))
    problems = [f"executor {_named(said)} {what}" for said in found if (what := here.problem(said))]
    if problems:
        raise ConfigError(*problems)
    for said in found:
        if said["mended"]:
            _log.warning("executor %s: %s", _named(said), said["mended"])


def not_shared(context: SparkContext, folder: Path, key: str, what: str) -> str | None:
    """See by files that both write whether every executor shares a folder with this process; None where all do.

    Else the problem, with one that does not; `key` is what names the folder, and `what` is kept in it.
    """
    mark = f".grete-shared-{uuid.uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / mark).write_text(mark)
    try:
        text = str(folder)
        found = _on_every_executor(context, lambda: shares(text, mark))
        apart = [one for one in found if one["problem"] or not (folder / one["own"]).exists()]
    finally:
        for path in folder.glob(f"{mark}*"):
            with suppress(FileNotFoundError):
                path.unlink()
    if not apart:
        return None
    reason = apart[0]["problem"] or "the driver does not see what it writes there"
    return (
        f"{key}: {what}, which executors write in {folder}, and {len(apart)} of {len(found)} executors do not share "
        f"that folder with the driver: of executor {_named(apart[0])}, {reason}. Set {key} to a folder of a file "
        f"system that all machines of the cluster mount at the same place"
    )


def _on_every_executor(context: SparkContext, look: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
    """What `look` says on each executor that there is, each once."""
    cloudpickle.register_pickle_by_value(preflight_probe)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        for _ in range(_ROUNDS):
            tasks = max(context.defaultParallelism, max(1, executors(context)))
            for said in _run(context, look, tasks):
                found[said["host"], said["place"]] = said
            if len(found) >= executors(context):
                break
        else:
            _log.warning("only %d of %d executors had room to be looked at", len(found), executors(context))
    finally:
        cloudpickle.unregister_pickle_by_value(preflight_probe)
    return list(found.values())


def _run(context: SparkContext, look: Callable[[], dict[str, Any]], tasks: int) -> list[dict[str, Any]]:
    hold = held
    try:
        context.setJobDescription("grete looks at the executors")
        said: list[dict[str, Any]] = (
            context.parallelize(range(tasks), tasks).map(lambda _: hold(_HOLD_S, look())).collect()
        )
    except (Py4JError, PySparkException, OSError) as error:
        raise _explained(context, error) from error
    else:
        return said
    finally:
        context.setLocalProperty("spark.job.description", None)


def _explained(context: SparkContext, error: Py4JError | PySparkException | OSError) -> GreteError:
    """A failure to run any Python there, with the host."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines()]
    reason = next((line for line in lines if _NO_PYTHON in line or _OTHER_PYTHON in line), None)
    if reason is None:
        return job_failed(context, error)
    where = _EXECUTOR.search(text)
    name = "of the cluster" if where is None else f"{where[2]} on {where[1]}"
    return ConfigError(
        f"executor {name} cannot run the driver's Python: {reason[:300]}. Install it there at the same path, or name "
        f"the one to use with PYSPARK_PYTHON"
    )


def _brokers(settings: Settings) -> Sequence[tuple[str, str, int]]:
    """Each broker that the configuration names, as it is written and as it is reached."""
    found = []
    for name in settings.system_names:
        written = settings.system(name).servers
        for address in resolve_secrets(written).split(",") if written else ():
            host, _, port = address.strip().rpartition(":")
            if host and port.isdecimal():
                found.append((f"system {name!r} at {written}", host.strip("[]"), int(port)))
    return found


def _named(said: Mapping[str, Any]) -> str:
    return f"on {said['host']} ({said['place']})"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _version(installed: Mapping[str, str]) -> str:
    return installed.get("grete", "not installed as a package")
