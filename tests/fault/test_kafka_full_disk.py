"""A broker whose disk is full ends itself amid writes: the job waits, and nothing is lost or counted twice.

The broker's files are on a file system in memory, so it needs a user that may mount one.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.fault.job_on_kafka import Job, job_on

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.waiting import eventually, reaches

pytestmark = [pytest.mark.fault, pytest.mark.nightly, pytest.mark.timeout(1_200)]
ROUNDS, AT_ONCE = 5, 4_000
SMALL = {"log.segment.bytes": "1048576", "log.index.size.max.bytes": "65536"}


class Disk:
    """The file system of one node's topics."""

    def __init__(self, at: Path) -> None:
        self._at, self._filler = at, at / "filler"
        at.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(at)], check=True)

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass

    def free(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._at)], check=True)


@pytest.fixture(params=[1, 3])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[KafkaCluster, Disk]]:
    """One node or three, and the disk of the first."""
    cluster = KafkaCluster(tmp_path / "kafka", nodes=request.param, settings=SMALL)
    with closing(Disk(cluster.nodes[0].directory / "log")) as disk:
        try:
            cluster.start()
            yield cluster, disk
        finally:
            cluster.stop()


def test_a_broker_whose_disk_is_full_costs_no_record(
    cluster: tuple[KafkaCluster, Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, disk = cluster
    nodes = len(brokers.nodes)
    ended = 0
    with job_on(brokers, tmp_path / "job", monkeypatch, copies=nodes, partitions=4) as job:
        job.submit()
        for _ in range(ROUNDS):
            job.send(AT_ONCE)
            reaches(job.count, job._sent - AT_ONCE + 200, "records counted", context=job.log_ends)
            disk.fill()
            ended += _ends(brokers, job, alone=nodes == 1)
            if nodes > 1:
                job.await_counted()  # by the others
            disk.free()
            brokers.ensure_running()
            job.await_counted()
        job.stop()
        job.assert_each_counted_once()
        job.assert_order_of_keys()
        print(
            f"{nodes} nodes: the disk of one was full {ROUNDS} times, its broker ended {ended} times; "
            f"{job._sent} records, none lost, none twice"
        )


def _ends(brokers: KafkaCluster, job: Job, *, alone: bool) -> bool:
    """Whether the broker ended itself; it does as soon as it has something to write."""
    first = brokers.nodes[0]
    if alone:
        eventually(lambda: first.running_pid() is None, "the broker ends", context=job.log_ends)
        time.sleep(3)  # the job meets no broker
        return True
    before = job.count()
    reaches(job.count, before + 200, "records counted without it", context=job.log_ends)
    return first.running_pid() is None
