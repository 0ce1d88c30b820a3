"""What befalls the jobs of a soak, one after the other, by chance."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from grete.errors import GreteError
from grete.operations import open_job
from grete.operations.configuration import set_config
from grete.testing.chaos.components import Component, below_containers, containers
from grete.testing.kafka_broker import KafkaCluster
from grete_workbench.soak.arithmetic import CountsInOrder
from grete_workbench.soak.jobs import SoakJob

_log = logging.getLogger("grete.soak")
_PAUSE_S = 8.0
"""Twice the lease of the jobs."""
_AWAY_S = 12.0
_FULL_S = 8.0


class Faults:
    """Strikes at one job, or at what all of them need. The same seed chooses the same faults in the same order."""

    def __init__(
        self, jobs: Sequence[SoakJob], cluster: KafkaCluster, home: Path, *, is_bounded: bool, seed: int
    ):
        """`home` is on a disk of its own where `is_bounded`."""
        self._jobs, self._cluster, self._home = jobs, cluster, home
        self._chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self.struck: dict[str, int] = {}
        tasks = [job for job in jobs if not job.kind.is_pipeline]
        self._kinds: list[tuple[str, Callable[[SoakJob], None], Sequence[SoakJob]]] = [
            ("coordinator killed", self._kill_coordinator, jobs),
            ("coordinator paused", self._pause_coordinator, jobs),
            ("container killed", self._kill_container, jobs),
            ("container paused", self._pause_container, jobs),
            (
                "JVM killed",
                self._kill_jvm,
                [job for job in jobs if job.kind.has_spark or job.kind.is_pipeline],
            ),
            ("broker killed", self._kill_broker, jobs[:1]),
            ("broker paused", self._pause_broker, jobs[:1]),
            ("configuration changed", self._configure, jobs),
            ("containers changed", self._scale, tasks),
            ("rewound", self._rewind, tasks),
        ]
        if is_bounded:
            self._kinds.append(("disk full", self._fill_disk, jobs[:1]))

    def strike(self) -> None:
        """One of them; what cannot be done now, since nothing runs, is left out."""
        name, strike, jobs = self._chance.choice(self._kinds)
        job = self._chance.choice(jobs)
        _log.info("%s: %s", name, job.kind.name)
        try:
            strike(job)
        except (GreteError, OSError, subprocess.SubprocessError) as error:
            _log.info("%s was not to be done: %.300s", name, error)
            return
        self.struck[name] = self.struck.get(name, 0) + 1

    def _kill_coordinator(self, job: SoakJob) -> None:
        os.kill(_coordinator(job), signal.SIGKILL)

    def _pause_coordinator(self, job: SoakJob) -> None:
        Component("coordinator", lambda: []).pause(_coordinator(job), _PAUSE_S)

    def _kill_container(self, job: SoakJob) -> None:
        os.kill(self._container(job), signal.SIGKILL)

    def _pause_container(self, job: SoakJob) -> None:
        Component("container", lambda: []).pause(self._container(job), _PAUSE_S)

    def _container(self, job: SoakJob) -> int:
        with open_job(job.id) as handle:
            return self._chance.choice(containers(handle) or _nothing())

    def _kill_jvm(self, job: SoakJob) -> None:
        with open_job(job.id) as handle:
            os.kill(self._chance.choice(below_containers(handle, "java") or _nothing()), signal.SIGKILL)

    def _kill_broker(self, job: SoakJob) -> None:
        self._cluster.kill(1)
        time.sleep(self._chance.uniform(1, _AWAY_S))
        self._cluster.start()

    def _pause_broker(self, job: SoakJob) -> None:
        self._cluster.pause(1)
        time.sleep(self._chance.uniform(1, _AWAY_S))
        self._cluster.resume(1)

    def _configure(self, job: SoakJob) -> None:
        key, values = ("task.max.records.per.batch", ("500", "1000", "2000"))
        with open_job(job.id) as handle:
            set_config(handle, {key: self._chance.choice(values)}, reason="soak")

    def _scale(self, job: SoakJob) -> None:
        with open_job(job.id) as handle:
            set_config(handle, {"job.container.count": self._chance.choice("12")}, reason="soak")

    def _rewind(self, job: SoakJob) -> None:
        known = json.loads(_grete("checkpoint", "history", "--job", job.kind.name, "-o", "json"))
        batches = sorted({f"batch:{row['lineage']}/{row['batch_id']}" for row in known if row["lineage"]})
        to = self._chance.choice(batches or _nothing())
        assert isinstance(job.checker, CountsInOrder), "it is no pipeline"
        job.checker.rewound()  # before, since its outputs may be there when we hear that it is done
        words = ("--job", job.kind.name, "--to", to, "--state", "restore", "--live", "--execute")
        _grete("checkpoint", "rewind", *words, "--reason", "soak")

    def _fill_disk(self, job: SoakJob) -> None:
        filler = self._home / "filler"
        try:
            with contextlib.suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
            time.sleep(_FULL_S)
        finally:
            filler.unlink(missing_ok=True)


def _grete(*words: str) -> str:
    command = [sys.executable, "-m", "grete.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    if done.returncode:
        raise OSError(done.stderr.strip()[-300:])
    return done.stdout


def _coordinator(job: SoakJob) -> int:
    return job.pid or _nothing()


def _nothing() -> NoReturn:
    raise OSError("nothing of it runs")
