"""An election whose file was lost, copied, or put back from an older copy: the job starts, above what was before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from grete.assembly import RunOptions
from grete.assembly.submission import Submission
from grete.clock import SystemClock
from grete.coordination.base import campaign_patiently
from grete.coordination.sqlite import SqliteCoordination
from grete.errors import HeldByOther
from grete.model.fence import container_epoch, container_fence
from grete.model.ids import ContainerId, JobId
from grete.sqlite_file import open_file
from grete.systems.local.system import LocalSystem
from grete.testing.clock import ManualClock

TTL_S = 15.0


class Elections:
    """Contenders over one file and one folder of lock files."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.clock = ManualClock()
        self.locks = directory / "locks"
        self._file = directory / "coordinator.db"
        self._stack = stack

    def contender(self) -> SqliteCoordination:
        file = self._stack.enter_context(closing(open_file(self._file)))
        coordination = SqliteCoordination(file, self.locks, self.clock, ttl_s=TTL_S)
        self._stack.callback(coordination.close)
        return coordination


@pytest.fixture
def elections(tmp_path: Path) -> Iterator[Elections]:
    with ExitStack() as stack:
        yield Elections(tmp_path, stack)


def test_a_dead_coordinator_without_its_lock_file_is_succeeded_after_its_lease(elections: Elections) -> None:
    dead = elections.contender()
    before = dead.campaign("job")
    dead.close()
    shutil.rmtree(elections.locks)
    began_s = elections.clock.monotonic_s()
    assert campaign_patiently(elections.contender(), "job", elections.clock).epoch > before.epoch
    assert elections.clock.monotonic_s() - began_s == pytest.approx(TTL_S, abs=1)


def test_a_living_coordinator_whose_lock_file_was_removed_is_left_alone(elections: Elections) -> None:
    living, other = elections.contender(), elections.contender()
    leadership = living.campaign("job")
    shutil.rmtree(elections.locks)
    with pytest.raises(HeldByOther) as first:
        other.campaign("job")
    assert first.value.may_be_dead
    elections.clock.advance(TTL_S / 3)
    assert living.renew(leadership) is not None
    with pytest.raises(HeldByOther) as second:
        other.campaign("job")
    assert not second.value.may_be_dead


def test_a_leader_is_above_every_fence_that_containers_of_the_job_have_seen(
    home: Path, system: LocalSystem
) -> None:
    """Else every container of a coordinator whose file is an older copy would be fenced off, run after run."""
    job = JobId("orders")
    system.raise_fence([container_fence(job, ContainerId("3"), container_epoch(500, 2))])
    system.raise_fence(
        [container_fence(JobId("orders-of-others"), ContainerId("0"), container_epoch(900, 1))]
    )
    path = home / "orders.properties"
    path.write_text("job.name=orders\ntask.class=x:X\ntask.inputs=local.in\n")
    with ExitStack() as stack:
        submission = Submission(RunOptions(config_paths=[str(path)]), home, SystemClock(), stack)
        submission.open()
        assert submission.campaign(None).epoch == 501
