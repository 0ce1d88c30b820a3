"""How a job stands, in a word and a sentence for people: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grete.config.settings.coordinator import RetryPolicy
from grete.coordinator.monitors.containers import ContainerFacts, Facts
from grete.coordinator.state import Container, State
from grete.model.ids import ContainerId

STARTING = "starting Spark"
RESTARTING = "restarting"
RUNNING = "running"
_NOT_AT_WORK = ("", "starting")
"""States that a container reports before its query runs; empty before its first heartbeat."""
_LONGEST = 400
_NO_FACTS = ContainerFacts(0)


@dataclass(frozen=True, slots=True)
class Standing:
    """`word` is `starting Spark`, `restarting` or `running`; `message` says what is not as it should be."""

    word: str = STARTING
    message: str = ""


def standing(state: State, reported: Facts) -> Standing:
    """How the job stands, given what its containers reported last."""
    working = {id_: one for id_, one in state.containers.items() if not _is_standby(state, id_)}
    several = len(working) > 1
    troubles = [
        f"container {id_} {text}" if several else text
        for id_, one in sorted(working.items())
        if (
            text := _trouble(one, state.retry, is_at_work=_is_at_work(one, reported, id_))
            or _wait(reported.get(id_, _NO_FACTS))
        )
    ]
    return Standing(_word(working, reported), "; ".join(troubles)[:_LONGEST])


def _is_standby(state: State, id_: ContainerId) -> bool:
    return id_ in state.specs and state.specs[id_].standby


def _word(containers: Mapping[ContainerId, Container], reported: Facts) -> str:
    expected = {id_: one for id_, one in containers.items() if not (one.done or one.given_up or one.held)}
    if any(_is_at_work(one, reported, id_) for id_, one in expected.items()):
        return RUNNING
    if any(one.failures.count for one in expected.values()):
        return RESTARTING
    return STARTING if expected or not containers else RUNNING


def _is_at_work(container: Container, reported: Facts, id_: ContainerId) -> bool:
    return container.running and _said(reported, id_) not in _NOT_AT_WORK


def _said(reported: Facts, id_: ContainerId) -> str:
    """The state that it reported; one that tries again whether an outage is over is not about to start Spark."""
    facts = reported.get(id_, _NO_FACTS)
    return "waiting" if _wait(facts) else facts.state


def _wait(facts: ContainerFacts) -> str:
    """For what a container waits that goes on by itself when it is there again."""
    said = "" if facts.state == "failed" else facts.message.partition("\n")[0].strip()
    return f"waits until it can go on: {said}" if said else ""


def _trouble(container: Container, policy: RetryPolicy, *, is_at_work: bool) -> str:
    failures = container.failures
    if container.given_up:
        return f"given up after {failures.count} failures: {failures.reason}"
    if failures.count == 0 or container.committed:
        return ""
    limit = f"/{policy.count + 1}" if policy.count >= 0 else ""
    return f"{'restarted' if is_at_work else 'restarting'} {failures.count}{limit}: {failures.reason}"
