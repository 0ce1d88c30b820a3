"""Shares that stand still, are killed or cut off, in processes of their own: nothing lost, nothing counted twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.kafka.kafka_job import Container, Job
from tests.support.share_processes import ShareProcesses, await_stopped, go_on
from tests.support.tcp_proxy import TcpProxy
from tests.unit.systems.test_local_commits import LocalJob

from grete.testing.kafka_broker import KafkaCluster
from grete.testing.server_cluster import free_ports
from grete.testing.waiting import eventually, patient, reaches

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]
NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
POINTS = ["executor.before-commit"]
if NIGHTLY:
    POINTS += ["executor.before-produce", "executor.flushed", "executor.committed", "executor.reported"]
TIMEOUT = {"task.commit.transaction.timeout.ms": "2000"}


class Shares(ShareProcesses):
    """Of a container of the job."""

    def __init__(self, job: Job, container: Container) -> None:
        super().__init__(container.epoch)
        self._job = job

    def count(self) -> int:
        return sum(map(len, self._job.counts().values()))

    def await_counted(self) -> None:
        reaches(self.count, self._job.sent, "records counted")


Begin = Callable[..., Shares]


@pytest.fixture(params=["local", "kafka"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    if request.param == "local":
        made: Job = LocalJob(tmp_path, config=TIMEOUT)
    else:
        cluster: KafkaCluster = request.getfixturevalue("kafka")
        made = Job(cluster.bootstrap, tmp_path, config=TIMEOUT)
    yield made
    made.close()


@pytest.fixture
def begin(job: Job) -> Iterator[Begin]:
    """Begin a container under this fence, or its next epoch; its shares are the test's to begin."""
    with ExitStack() as stack:

        def made(fence_epoch: int, *, slots_at_most: int | None = None) -> Shares:
            container = job.container(fence_epoch, slots_at_most=slots_at_most)
            stack.callback(container.close)
            return stack.enter_context(Shares(job, container))

        yield made


@pytest.mark.one_in(2)
@pytest.mark.parametrize("point", POINTS)
def test_a_share_that_stood_still_while_it_was_begun_again_commits_nothing_more(
    job: Job, begin: Begin, point: str
) -> None:
    shares = begin(1)
    stopped, neighbour = shares.begin(0, failpoint=f"{point}:stop"), shares.begin(1)
    job.fill(40)
    await_stopped(stopped)
    second = shares.begin(0)
    shares.await_counted()
    go_on(stopped)
    stopped.join(patient(60))
    assert stopped.exitcode is not None
    job.fill(40)
    shares.await_counted()
    assert second.is_alive()
    assert neighbour.is_alive()
    shares.end()
    job.assert_exactly_once()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("point", POINTS)
def test_a_share_that_stood_still_while_another_container_took_over_commits_nothing_more(
    job: Job, begin: Begin, point: str
) -> None:
    shares = begin(1)
    stopped = shares.begin(0, failpoint=f"{point}:stop")
    job.fill(40)
    await_stopped(stopped)
    successor = begin(2)
    successors = successor.begin_all()
    successor.await_counted()
    go_on(stopped)
    job.fill(40)
    stopped.join(patient(60))
    assert stopped.exitcode == 1, "it was fenced off"
    successor.await_counted()
    assert all(process.is_alive() for process in successors)
    successor.end()
    job.assert_exactly_once()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("point", POINTS)
def test_a_share_that_stood_still_while_its_container_went_on_with_fewer_shares_commits_nothing_more(
    job: Job, begin: Begin, point: str
) -> None:
    """Nobody takes its slot any more, and nobody has committed its tasks' records since, when it goes on."""
    shares = begin(1)
    stopped, neighbour = shares.begin(1, failpoint=f"{point}:stop"), shares.begin(0)
    job.fill(40)
    await_stopped(stopped)
    eventually(lambda: shares.count() >= 20, "the neighbour has committed its share")
    neighbour.kill()
    neighbour.join()
    next_epoch = begin(1, slots_at_most=1)
    only = next_epoch.begin(0, failpoint="executor.before-produce:stop")
    await_stopped(only)
    go_on(stopped)
    stopped.join(patient(60))
    assert stopped.exitcode == 1, "its epoch is over"
    go_on(only)
    next_epoch.await_counted()
    job.fill(40)
    next_epoch.await_counted()
    assert only.is_alive()
    next_epoch.end()
    job.assert_exactly_once()


def test_a_share_that_stood_still_for_longer_than_its_transaction_may_take_goes_on(
    job: Job, begin: Begin
) -> None:
    """Brokers have aborted it meanwhile, so it commits the same again. Readers wait no longer than that."""
    shares = begin(1)
    stopped = shares.begin(0, failpoint="executor.before-commit:stop")
    shares.begin(1)
    job.fill(40)
    await_stopped(stopped)
    eventually(lambda: 0 < shares.count() < 40, "what the neighbour has counted can be read")
    go_on(stopped)
    shares.await_counted()
    assert stopped.is_alive()
    shares.end()
    assert stopped.exitcode == 0
    job.assert_exactly_once()


def test_while_a_killed_share_is_away_its_neighbour_goes_on(job: Job, begin: Begin) -> None:
    shares = begin(1)
    killed, neighbour = shares.begin_all()
    job.fill(40)
    shares.await_counted()
    killed.kill()
    for _ in range(3):
        before = shares.count()
        job.fill(14)
        eventually(lambda reached=before: shares.count() == reached + 6, "the neighbour's share of them")
    assert neighbour.is_alive()
    shares.begin(0)
    shares.await_counted()
    shares.end()
    job.assert_exactly_once()


def test_a_share_that_is_cut_off_from_its_container_ends_as_failed_and_can_begin_again(
    job: Job, begin: Begin
) -> None:
    """So Spark, or the container, begins it again: one that ended as if asked to would be away for an epoch."""
    shares = begin(1)
    neighbour = shares.begin(1)
    [port] = free_ports(1)
    with TcpProxy(port, shares.server.address[1]) as proxy:
        shares.address = ("127.0.0.1", port)
        first = shares.begin(0)
        for _ in range(2):
            job.fill(40)
            shares.await_counted()
            proxy.cut()
            job.fill(40)
            first.join(patient(60))
            assert first.exitcode == 1
            proxy.restore()
            first = shares.begin(0)
        shares.await_counted()
        assert neighbour.is_alive()
        shares.end()
    assert first.exitcode == 0
    job.assert_exactly_once()
