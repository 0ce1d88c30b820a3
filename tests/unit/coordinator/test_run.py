"""A job's process over the incarnations of its coordinator, when its stores are away and it is to end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grete.assembly import RunOptions, run, run_job, submission
from grete.assembly.stop_signals import StopSignals
from grete.clock import SystemClock
from grete.coordination.base import Leadership
from grete.coordination.memory import MemoryCoordination
from grete.coordinator.events import Event, StopRequested
from grete.coordinator.renewal import Renewal
from grete.coordinator.view import View
from grete.embedded.leading import LeaderRequests
from grete.errors import GreteError, LeadershipLost, LogUnreachable
from grete.model.ids import JobId
from grete.model.streams import StreamSpec
from grete.operations import open_job
from grete.systems.local.system import LocalSystem

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
PATIENTLY = "job.coordinator.lease.ttl.ms=600000"  # so that only the loop renews


class Election(MemoryCoordination):
    """It answers until a process leads, and never again. The signal comes with the call."""

    def __init__(self, signal_at: str) -> None:
        super().__init__(SystemClock())
        self._signal_at = signal_at
        self._asked_to_end = False
        self.campaigns = 0

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        self.campaigns += 1
        if self.campaigns == 1:
            leadership = super().campaign(scope, take_over=take_over, epoch_floor=epoch_floor)
            return replace(leadership, valid_until_s=float("-inf"))  # the loop renews before it acts
        self._is_away("campaign")
        raise AssertionError

    def renew(self, leadership: Leadership) -> Leadership | None:
        self._is_away("renew")
        raise AssertionError

    def _is_away(self, asked_to: str) -> None:
        assert not self._asked_to_end, f"asked to {asked_to} after the end was asked for"
        if asked_to == self._signal_at:
            self._asked_to_end = True
            signal.raise_signal(signal.SIGTERM)
        raise LogUnreachable("no broker answers")


@pytest.fixture
def config(home: Path, system: LocalSystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    system.create_stream(StreamSpec("in", 1))
    path = home / "orders.properties"
    path.write_text(f"job.name=orders\ntask.class=orders:Orders\ntask.inputs=local.in\n{PATIENTLY}\n")
    monkeypatch.setattr(run, "_PAUSE_S", (0.001, 0.001))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield path
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("signal_at", "campaigns"), [("renew", 1), ("campaign", 2)])
def test_a_signal_ends_the_process_also_while_no_incarnation_of_its_coordinator_listens(
    config: Path, monkeypatch: pytest.MonkeyPatch, signal_at: str, campaigns: int
) -> None:
    """One has just ended, or the next one tries to begin, which takes most of the time of an outage."""
    election = Election(signal_at)
    monkeypatch.setattr(submission, "open_coordination", lambda *_, **__: election)
    with pytest.raises(LogUnreachable, match="no broker answers"):
        run_job(RunOptions(config_paths=[str(config)]))
    assert election.campaigns == campaigns


class TakenSignals(StopSignals):
    """Counts what incarnations took."""

    taken = 0

    def requests(self, deadline_s: float) -> Iterator[StopRequested]:
        for request in super().requests(deadline_s):
            self.taken += 1
            yield request


def test_a_stop_whose_leadership_was_lost_is_finished_by_the_next_incarnation(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service stood still for a lease after the signal: the job was left as it was, with exit code 5."""
    election, signals, proven = MemoryCoordination(SystemClock()), TakenSignals(), Renewal.prove
    asked: list[View] = []

    def prove(renewal: Renewal) -> Leadership:
        if signals.taken and renewal.epoch == 1:
            raise LeadershipLost("the service stood still")
        return proven(renewal)

    def ask_once(view: View) -> None:
        if not asked:
            signal.raise_signal(signal.SIGTERM)
        asked.append(view)

    monkeypatch.setattr(submission, "open_coordination", lambda *_, **__: election)
    monkeypatch.setattr(Renewal, "prove", prove)
    signals.listen()
    options = RunOptions(config_paths=[str(config)], container_command=SLEEPER)
    assert run_job(options, ask_once, signals=signals) == 0
    assert (len(asked), signals.taken) == (2, 2)
    assert recorded_state() == "stopped"


def test_a_signal_that_comes_just_when_the_leadership_is_lost_stops_the_job_too(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any incarnation took it. So the process ended with code 5 and left the job as it was."""
    election, signals, proven = MemoryCoordination(SystemClock()), StopSignals(), Renewal.prove

    def prove(renewal: Renewal) -> Leadership:
        if renewal.epoch == 1:
            signal.raise_signal(signal.SIGTERM)
            raise LeadershipLost("the service stood still")
        return proven(renewal)

    monkeypatch.setattr(submission, "open_coordination", lambda *_, **__: election)
    monkeypatch.setattr(Renewal, "prove", prove)
    assert run_job(RunOptions(config_paths=[str(config)], container_command=SLEEPER), signals=signals) == 0
    assert recorded_state() == "stopped"


class TakenOrders(LeaderRequests):
    """Counts what incarnations took."""

    taken = 0

    def requests(self, deadline_s: float) -> Iterator[Event]:
        for request in super().requests(deadline_s):
            self.taken += 1
            yield request


@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", [LeadershipLost("the service stood still"), LogUnreachable("no answer")])
def test_a_stop_of_the_last_processor_outlives_the_incarnation_that_took_it(
    error: GreteError, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is not asked to coordinate no more, so it would have coordinated for ever."""
    election, requests, proven = MemoryCoordination(SystemClock()), TakenOrders(), Renewal.prove

    def prove(renewal: Renewal) -> Leadership:
        if renewal.epoch == 1 and requests.taken:
            raise error
        return proven(renewal)

    def ask_once(_: View) -> None:
        if not requests.ends_job:
            requests.stop_job()

    monkeypatch.setattr(submission, "open_coordination", lambda *_, **__: election)
    monkeypatch.setattr(Renewal, "prove", prove)
    options = RunOptions(config_paths=[str(config)], container_command=SLEEPER)
    assert run_job(options, ask_once, signals=requests) == 0
    assert recorded_state() == "stopped"


def recorded_state() -> str:
    with open_job(JobId("orders")) as handle:
        state = handle.state()
        assert state is not None
        return state.state
