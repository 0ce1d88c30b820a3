"""A coordinator that stands by on Azure Storage: what it asks of the service, and how soon it leads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from grete.assembly import RunOptions
from grete.assembly.stand_by import lead_when_free
from grete.assembly.submission import Submission
from grete.config.settings.azure import account_of
from grete.coordination.azure import AzureCoordination
from grete.coordination.base import Leadership
from grete.coordination.membership import standbys
from grete.embedded.agent import Agent
from grete.embedded.processor import look_every_s
from grete.errors import IllegalStateError
from grete.model.ending import ContainerEnd
from grete.model.fence import job_scope
from grete.model.streams import StreamSpec
from grete.systems.local.system import LocalSystem
from grete.testing.clock import ManualClock
from grete_workbench.azurite import Azurite, AzuriteClock

pytestmark = pytest.mark.fault
TTL_S = 15.0
MOST_A_MINUTE = 24


@pytest.fixture
def leader(azurite: Azurite) -> Iterator[AzureCoordination]:
    with closing(AzureCoordination(account_of(azurite.bootstrap), ManualClock(), ttl_s=TTL_S)) as opened:
        yield opened


@pytest.fixture
def submitted(
    azurite: Azurite, home: Path, system: LocalSystem
) -> Iterator[Callable[[ManualClock], Submission]]:
    """A submit of a job of its own that stands by, on a clock."""
    system.create_stream(StreamSpec("in", 1))
    config = home / "standby.properties"
    settings = {
        "job.name": f"standby-{uuid.uuid4().hex[:8]}",
        "job.coordinator.factory": "azure",
        "azure.storage.connect": azurite.bootstrap,
        "task.class": "orders:Orders",
        "task.inputs": "local.in",
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with ExitStack() as stack:

        def submit(clock: ManualClock) -> Submission:
            submission = Submission(
                RunOptions(config_paths=[str(config)], stands_by=True), home, clock, stack
            )
            submission.open()
            return submission

        yield submit


def test_a_standby_makes_no_more_than_24_requests_a_minute_and_a_leader_12(
    leader: AzureCoordination, submitted: Callable[[ManualClock], Submission]
) -> None:
    """And is listed all the time. The server's clock stands, so that no lease ends."""
    clock = ManualClock()
    submission = submitted(clock)
    standby = submission.coordination
    assert isinstance(standby, AzureCoordination)
    scope = job_scope(submission.job)
    led: Leadership | None = leader.campaign(scope)
    members = standbys(leader.cells(scope), clock, lease_s=TTL_S)
    asked, renewals, listed = [], [], []
    lasts_s = 5 * 60.0

    def wait(seconds: float) -> bool:
        nonlocal led
        before_s = clock.monotonic_s()
        clock.advance(seconds)
        asked.append(standby.requests)
        if before_s // (TTL_S / 3) != clock.monotonic_s() // (TTL_S / 3):
            before = leader.requests
            assert led is not None
            led = leader.renew(led)
            renewals.append(leader.requests - before)
        if len(asked) % 100 == 0:
            listed.append(len(members.heard_of()))
        return clock.monotonic_s() >= lasts_s

    began_s = clock.monotonic_s()
    lasts_s += began_s
    assert lead_when_free(submission, clock, None, wait, has_stepped_down=False) is None
    minutes = (clock.monotonic_s() - began_s) / 60
    print(
        f"requests a minute: {asked[-1] / minutes:.1f} of a standby, {sum(renewals) / minutes:.1f} of a leader"
    )
    assert asked[-1] / minutes <= MOST_A_MINUTE
    assert sum(renewals) / minutes <= 12.2
    assert set(listed) == {1}


@pytest.mark.parametrize("phase_s", [0.0, 1.6, 3.3])
def test_a_standby_leads_within_a_lease_and_a_quarter_of_its_leaders_last_renewal(
    leader: AzureCoordination,
    azurite: Azurite,
    submitted: Callable[[ManualClock], Submission],
    phase_s: float,
) -> None:
    """Wherever between two of its looks that was."""
    clock = AzuriteClock(azurite)
    submission = submitted(clock)
    scope = job_scope(submission.job)
    led = leader.campaign(scope)
    renewed_s: float | None = None

    def wait(seconds: float) -> bool:
        nonlocal renewed_s
        now_s = clock.monotonic_s()
        if renewed_s is None and now_s + seconds > began_s + phase_s:
            clock.advance(began_s + phase_s - now_s)
            assert leader.renew(led) is not None
            renewed_s = clock.monotonic_s()
            seconds -= renewed_s - now_s
        clock.advance(seconds)
        return False

    began_s = clock.monotonic_s()
    leadership = lead_when_free(submission, clock, None, wait, has_stepped_down=False)
    assert leadership is not None
    assert leadership.epoch > led.epoch
    assert renewed_s is not None
    assert clock.monotonic_s() - renewed_s <= 1.25 * TTL_S + 0.5


def run_nothing(*_: object) -> ContainerEnd:
    raise IllegalStateError("no order was given")


def ignore(state: str) -> None:
    """Nobody asks."""


class EndingClock(ManualClock):
    """Ends something once so much time has passed."""

    def __init__(self, after_s: float, end: Callable[[], None]) -> None:
        super().__init__()
        self._end_s = self.monotonic_s() + after_s
        self._end = end

    def advance(self, seconds_s: float) -> None:
        super().advance(seconds_s)
        if self.monotonic_s() >= self._end_s:
            self._end()


def test_a_processor_that_waits_for_work_makes_no_more_than_60_requests_a_minute(azurite: Azurite) -> None:
    """Beside those of the coordinator that stands by in it."""
    agents: list[Agent] = []
    clock = EndingClock(300, lambda: agents[0].stop())
    with closing(AzureCoordination(account_of(azurite.bootstrap), clock, ttl_s=TTL_S)) as service:
        cells = service.cells(f"processors/{uuid.uuid4().hex}")
        every_s = look_every_s(service, TTL_S)
        agents.append(Agent("a", cells, clock, run_nothing, ignore, ttl_s=TTL_S, every_s=every_s))
        [agent] = agents
        agent.join()
        agent.run()
        a_minute = service.requests / 5
    print(f"requests a minute of a processor: {a_minute:.1f}")
    assert agent.is_last
    assert a_minute <= 60
