"""Running the real Samza 1.8.0: its published jars and the programs of `interop/`, fetched by `make services`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from grete.errors import GreteError
from grete.testing.waiting import patient

GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class SamzaFailed(GreteError):
    """The jars are not there, or the program ended with an error. The message ends with what it said."""


def jars_directory() -> Path:
    """Where `make services` puts the jars: `GRETE_SAMZA_JARS`, else a folder of the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("GRETE_SAMZA_JARS", cache / "grete" / "samza-1.8.0"))


def samza_config(bootstrap: str, job: str) -> dict[str, str]:
    """A job's configuration as Samza's users write it, on one broker."""
    return {
        "job.name": job,
        "job.id": "1",
        "job.coordinator.system": "kafka",
        "job.coordinator.replication.factor": "1",
        "job.systemstreampartition.grouper.factory": GROUPER,
        "systems.kafka.samza.factory": "org.apache.samza.system.kafka.KafkaSystemFactory",
        "systems.kafka.consumer.bootstrap.servers": bootstrap,
        "systems.kafka.consumer.zookeeper.connect": "localhost:2181",
        "systems.kafka.consumer.isolation.level": "read_committed",
        "systems.kafka.producer.bootstrap.servers": bootstrap,
        "task.checkpoint.factory": "org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory",
        "task.checkpoint.system": "kafka",
        "task.checkpoint.replication.factor": "1",
        "task.inputs": "kafka.page-views",
    }


def java_command(program: str, *arguments: str, jvm: Sequence[str] = ()) -> list[str]:
    """The command line of a program of `interop/` with Samza's jars. `jvm` wins over the usual options.

    Raises:
        SamzaFailed: no jars, or no Java.
    """
    jars = jars_directory()
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [java(jars), *JVM, *jvm, quiet, "-cp", f"{jars}/classes:{jars}/*", program, *arguments]


def run_samza(
    command: str, config: Mapping[str, str], directory: Path, *, jvm: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Run a command of `grete.interop.Samza`; what it printed, as lines of fields.

    Raises:
        SamzaFailed: no jars, no Java, or the program failed.
    """
    properties = write_properties(config, directory / f"{command}.properties")
    program = java_command("grete.interop.Samza", command, str(properties), jvm=jvm)
    done = subprocess.run(  # noqa: S603 - our own words
        program, capture_output=True, text=True, timeout=patient(300), check=False
    )
    if done.returncode != 0:
        raise SamzaFailed(f"{command} failed: {done.stderr[-4_000:]}")
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


def java(jars: Path) -> str:
    """The `java` that runs what is in `jars`.

    Raises:
        SamzaFailed: no jars, or no Java.
    """
    java = shutil.which("java")
    if java is None or not (jars / "classes").exists():
        raise SamzaFailed(f"no java on the PATH, or no Samza in {jars}: run make services")
    return java


def write_properties(config: Mapping[str, str], path: Path) -> Path:
    """Write a file as Java reads it; returns `path`."""
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    return path
