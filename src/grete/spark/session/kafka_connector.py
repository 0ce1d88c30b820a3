"""Where Spark gets its Kafka connector from, decided before the session starts: afterwards it is too late.

In this order: what is on the class path already (Spark's own folder, or what the configuration's `spark.*` keys
name); a folder of jars that were fetched before (`systems.<system>.connector.jars`, `GRETE_SPARK_KAFKA_JARS`, or
where `make services` puts them); else Spark fetches it by `spark.jars.packages`. Its version must be Spark's: with
another one the session starts and the first batch fails in the middle of Scala.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from grete.errors import ConfigError, JobError

ARTIFACT = "spark-sql-kafka-0-10_2.13"
_NAMED = re.compile(r"spark-sql-kafka-0-10_[\d.]+[-:](\d+\.\d+\.\d+[\w.-]*?)(?:\.jar)?\Z")
_JARS = "spark.jars"
_PACKAGES = "spark.jars.packages"
_CLASS_PATH = "spark.driver.extraClassPath"


def connector_settings(
    options: Mapping[str, str], fetched_jars: str | None, *, spark_version: str, spark_jars: Path
) -> dict[str, str]:
    """The `spark.*` options that bring the connector along, each after those that `options` has under its name.

    `fetched_jars` is `systems.<system>.connector.jars`, `spark_jars` the folder of Spark's own jars.

    Raises:
        ConfigError: a connector of another version than Spark's, or a folder without one; names it.
    """
    present = [version for name in _present(options, spark_jars) if (version := _version(name)) is not None]
    if present:
        for version in present:
            _check(version, spark_version, "is on the class path")
        return {}
    # a later patch release of Spark is no reason to refuse a job because of what an earlier one has left in the cache
    directory = jars_directory(fetched_jars, folders=f"spark-kafka-{spark_version}")
    if directory is None:
        return added(options, _PACKAGES, [f"org.apache.spark:{ARTIFACT}:{spark_version}"])
    jars = sorted(directory.glob("*.jar"))
    versions = [version for jar in jars if (version := _version(jar.name)) is not None]
    if not versions:
        raise ConfigError(f"there is no {ARTIFACT}-{spark_version}.jar in {directory}; see docs/kafka.md")
    _check(versions[0], spark_version, f"is in {directory}")
    return added(options, _JARS, [str(jar) for jar in jars])


def jars_directory(
    named: str | None, variable: str = "GRETE_SPARK_KAFKA_JARS", folders: str = "spark-kafka-*"
) -> Path | None:
    """The folder of jars that were fetched before; None when there is none."""
    named = named or os.environ.get(variable)
    if named:
        return Path(named).resolve()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    fetched = sorted((cache / "grete").glob(f"{folders}/complete"))
    return fetched[-1].parent if fetched else None


def could_not_start(settings: Mapping[str, str], error: Exception, said: str = "") -> JobError:
    """Spark's own words for a connector that it could not fetch are in its log only; these are for the operator.

    `said` is the end of that log, where nobody else has it.
    """
    if "JAVA_GATEWAY_EXITED" in str(error) and shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return JobError(
            "Spark did not start: there is no Java. Install Java 17 or newer, or set JAVA_HOME to it"
        )
    packages = settings.get(_PACKAGES)
    hint = (
        f". It was to fetch {packages} first; where Maven Central cannot be reached, fetch the jars elsewhere, and "
        "name them in spark.jars, or the folder of the Kafka connector's in systems.<system>.connector.jars "
        "(docs/kafka.md)"
        if packages
        else ""
    )
    log = f". Spark said:\n{said}" if said else ""
    return JobError(f"Spark did not start: {error}{hint}. `grete doctor` looks at Java and at Spark{log}")


def no_connector(kafka_system: str, spark_version: str) -> ConfigError:
    """For a session that was started without it, which is too late to bring it."""
    package = f"org.apache.spark:{ARTIFACT}:{spark_version}"
    return ConfigError(
        f"system {kafka_system!r} is on Kafka, and this Spark session has no connector to it, nor takes one while it "
        f"runs. Start the session with spark.jars.packages={package}, or, where Maven Central cannot be reached, "
        f"with the jars of {package} and what it depends on in spark.jars (docs/kafka.md); or let containers run "
        f"in processes of their own (grete run), which bring it"
    )


def check_version(jar: str, spark_version: str) -> None:
    """Whether the connector in this jar is of Spark's version; one whose name says no version is taken for it.

    Raises:
        ConfigError: it is of another.
    """
    if (version := _version(jar)) is not None:
        _check(version, spark_version, "is on the class path")


def _present(options: Mapping[str, str], spark_jars: Path) -> Iterable[str]:
    """Names of everything that is on the class path without our doing."""
    for key, separator in ((_JARS, ","), (_PACKAGES, ","), (_CLASS_PATH, os.pathsep)):
        yield from options.get(key, "").split(separator)
    yield from (jar.name for jar in spark_jars.glob("spark-sql-kafka-*.jar"))


def _version(name: str) -> str | None:
    found = _NAMED.search(name.strip())
    return found[1] if found else None


def _check(version: str, spark_version: str, where: str) -> None:
    if version != spark_version:
        raise ConfigError(
            f"Spark's Kafka connector {version} {where}, but Spark is {spark_version}; the two must be of one version"
        )


def added(options: Mapping[str, str], key: str, items: Iterable[str]) -> dict[str, str]:
    """The option with more items behind those that it has."""
    return {key: ",".join([*filter(None, options.get(key, "").split(",")), *items])}
