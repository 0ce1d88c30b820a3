"""Where the demo runs: on the embedded system, or on a Kafka broker that it starts for itself."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from load import load
from load_kafka import load_topic

from grete.clock import SystemClock
from grete.config.load import load as load_config
from grete.config.settings import Settings
from grete.packages.build import build_application, default_python
from grete.systems.base import System
from grete.systems.factory import open_system
from grete.systems.local.system import LocalSystem

HERE = Path(__file__).resolve().parent
BROKER = "GRETE_DEMO_KAFKA"
JOBS = ("inherited-delays", "carriers")
Load = Callable[[int, Callable[[int], None]], int]


@dataclass(frozen=True)
class Place:
    """A system and what is special about it. `files` are the configuration of a job there, which
    `settings` change.
    """

    name: str
    system: System
    load: Load
    files: Callable[[str], Sequence[Path]]
    shown: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)
    is_deployed: bool = False
    """Whether a cluster manager runs the jobs, coordinators included."""

    def words(self, job: str) -> list[str]:
        """Arguments of `grete run` for a job."""
        files = [word for file in self.files(job) for word in ("--config", str(file))]
        return files + [word for pair in self.settings.items() for word in ("--set", "=".join(pair))]

    def settings_of(self, job: str) -> Settings:
        """The job's settings, for finding its coordinator stream."""
        return Settings.of(load_config([str(file) for file in self.files(job)], self.settings))


@contextmanager
def embedded(home: Path) -> Iterator[Place]:
    """SQLite files in the home."""
    shown = (
        "  local/coordinator.db  the jobs' coordinator streams: configuration, job model, history",
        "  local/streams.db      input, outputs, changelogs and checkpoints, committed together",
    )
    with closing(LocalSystem(home / "local", SystemClock())) as system:
        yield Place(
            "local",
            system,
            lambda flights, show: load(system, flights, show),
            lambda job: [HERE / f"{job}.properties"],
            shown,
        )


@contextmanager
def on_kafka(home: Path) -> Iterator[Place]:
    """A broker of one node in the home, for as long as the demo runs."""
    from grete.testing.kafka_broker import KafkaCluster

    broker = KafkaCluster(home / "broker")
    print(f"Starting a Kafka broker in {home / 'broker'}", file=sys.stderr, flush=True)
    broker.start()
    try:
        os.environ[BROKER] = broker.bootstrap
        config = {
            "systems.kafka.samza.factory": "kafka",
            "systems.kafka.producer.bootstrap.servers": broker.bootstrap,
            "systems.kafka.default.stream.replication.factor": "1",
            "systems.kafka.default.stream.retention.ms": "-1",  # flights of 2013 are too old for a broker's default
            "task.checkpoint.replication.factor": "1",
        }
        shown = (
            f"  broker/  the topics of a broker that was at {broker.bootstrap}, and has ended with the demo:",
            "           coordinator streams, input, outputs, changelogs and checkpoints",
        )
        with closing(open_system(Settings.of(config), "kafka", home, SystemClock())) as system:
            yield Place(
                "kafka",
                system,
                lambda flights, show: load_topic(broker.bootstrap, system, flights, show),
                lambda job: (
                    [HERE / f"{job}{end}.properties" for end in ("", "-on-kafka")]
                    + [HERE / "kafka.properties"]
                ),
                shown,
            )
    finally:
        broker.stop()


@contextmanager
def on_cluster(home: Path, manager: str) -> Iterator[Place]:
    """The same broker, and executors of a cluster, for as long as the demo runs."""
    from clusters import DEPLOYED, MANAGERS

    with on_kafka(home) as place, MANAGERS[manager](home) as settings:
        own = {job: isolation(home / "packages" / job, job) for job in JOBS}
        yield replace(
            place,
            settings=settings,
            is_deployed=manager in DEPLOYED,
            files=lambda job: [*place.files(job), own[job]],
        )


def isolation(folder: Path, job: str) -> Path:
    """The configuration of a job whose application is a package, with its modules, what its lock names and its
    interpreter, which grete brings to the cluster. Nothing of the framework is in it.
    """
    package = folder / "__package"
    if not package.exists():
        print(f"Building the environment of {job}, {package}", file=sys.stderr, flush=True)
        modules = folder / "modules"
        modules.mkdir(parents=True, exist_ok=True)
        for module in HERE.glob(f"{job.replace('-', '_')}*.py"):
            shutil.copy(module, modules)
        build_application(folder, HERE / f"{job}.lock", default_python(), modules)
    config = folder / "isolated.properties"
    config.write_text(
        f"job.application.path=\njob.split.deployment.enabled=true\njob.application.environment={package}\n"
    )
    return config
