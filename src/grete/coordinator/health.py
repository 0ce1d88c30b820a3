"""How a job stands, in a word and a sentence for people: pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.monitors.containers import ContainerFacts, Facts
from grete.coordinator.state import ContainerState, State
from grete.model.ids import ContainerId
from grete.text_logs import shortened

STARTING = "starting Spark"
RESTARTING = "restarting"
RUNNING = "running"
_NOT_AT_WORK = ("", "starting")
"""States that a container reports before its query runs; empty before its first heartbeat."""
_LONGEST = 2_000
ClockTime = Callable[[float], str]
_NO_FACTS = ContainerFacts(0)


@dataclass(frozen=True, slots=True)
class JobHealth:
    """`word` is `starting Spark`, `restarting` or `running`; `message` says what is not as it should be.

    `failures`: how often the container has failed that failed most, of those that are started again.
    """

    word: str = STARTING
    message: str = ""
    failures: int = 0


def standing(state: State, reported: Facts, clock_time: ClockTime) -> JobHealth:
    """How the job stands, given what its containers reported last.

    `clock_time` says in words when a time of the loop's clock is.
    """
    working = {id_: one for id_, one in state.containers.items() if not _is_standby(state, id_)}
    several = len(working) > 1
    troubles = [
        f"container {id_} {text}" if several else text
        for id_, one in sorted(working.items())
        if (text := _text(one, state.retry, clock_time, reported, id_))
    ]
    failures = max((one.failures.count for one in working.values() if _is_restarted(one)), default=0)
    return JobHealth(_word(working, reported), shortened("; ".join(troubles), _LONGEST), failures)


def _text(
    container: ContainerState, policy: RetryPolicy, clock_time: ClockTime, reported: Facts, id_: ContainerId
) -> str:
    """What is not as it should be with it; empty where nothing is."""
    facts = reported.get(id_, _NO_FACTS)
    trouble = _trouble(container, policy, clock_time, is_at_work=_is_at_work(container, reported, id_))
    return "; ".join(filter(None, (trouble or _wait(facts), _queue(facts))))


def _is_standby(state: State, id_: ContainerId) -> bool:
    return id_ in state.specs and state.specs[id_].standby


def _word(containers: Mapping[ContainerId, ContainerState], reported: Facts) -> str:
    expected = {id_: one for id_, one in containers.items() if not (one.done or one.given_up or one.held)}
    if any(_is_at_work(one, reported, id_) for id_, one in expected.items()):
        return RUNNING
    if any(one.failures.count for one in expected.values()):
        return RESTARTING
    return STARTING if expected or not containers else RUNNING


def _is_at_work(container: ContainerState, reported: Facts, id_: ContainerId) -> bool:
    return container.running and _said(reported, id_) not in _NOT_AT_WORK


def _said(reported: Facts, id_: ContainerId) -> str:
    """The state that it reported; one that tries again whether an outage is over is not about to start Spark."""
    facts = reported.get(id_, _NO_FACTS)
    return "waiting" if _wait(facts) else facts.state


def _wait(facts: ContainerFacts) -> str:
    """For what a container waits that goes on by itself when it is there again."""
    said = "" if facts.state == "failed" or facts.is_awaited else facts.message.partition("\n")[0].strip()
    return f"waits until it can go on: {said}" if said else ""


def _queue(facts: ContainerFacts) -> str:
    """For what the cluster manager lets it wait before it begins."""
    said = facts.message.partition("\n")[0].strip() if facts.is_awaited else ""
    return f"has not begun, the cluster manager says: {said}" if said else ""


def _is_restarted(container: ContainerState) -> bool:
    return container.failures.count > 0 and not (container.given_up or container.committed)


def _trouble(
    container: ContainerState, policy: RetryPolicy, clock_time: ClockTime, *, is_at_work: bool
) -> str:
    failures = container.failures
    if container.given_up:
        return f"given up after {failures.count} failures: {failures.reason}"
    if not _is_restarted(container):
        return ""
    limit = f"/{policy.count + 1}" if policy.count >= 0 else ""
    again_at_s = container.restart_at_s
    next_try = "" if again_at_s is None else f", next try at {clock_time(again_at_s)}"
    return (
        f"{'restarted' if is_at_work else 'restarting'} {failures.count}{limit}{next_try}: {failures.reason}"
    )
