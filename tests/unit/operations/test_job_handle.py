"""A job that is looked at while the service that elects its leader is slow."""

from __future__ import annotations

from typing import ClassVar

import pytest

from grete.config.settings import Settings
from grete.coordination.base import Coordination, Holder
from grete.coordination.factory import BUILT_IN, CoordinationContext
from grete.coordination.memory import MemoryCoordination
from grete.errors import CoordinationUnreachable, LogUnreachable
from grete.model.fence import job_scope
from grete.model.ids import JobId
from grete.operations import open_job

JOB = JobId("orders")


class Slow(MemoryCoordination):
    """The first answers come too late: a service says so in its way, brokers in theirs."""

    unanswered: ClassVar = [LogUnreachable("no answer within 0.5 s"), CoordinationUnreachable("no answer")]

    def holder(self, scope: str) -> Holder | None:
        if self.unanswered:
            raise self.unanswered.pop()
        return super().holder(scope)


def slow(context: CoordinationContext) -> Coordination:
    made = Slow(context.clock, ttl_s=context.ttl_s)
    made.campaign(job_scope(JOB))
    return made


@pytest.mark.usefixtures("home")
def test_a_slow_answer_is_no_error_for_who_only_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILT_IN, "slow", f"{__name__}:slow")
    config = {"job.name": "orders", "job.coordinator.system": "local", "job.coordinator.factory": "slow"}
    with open_job(JOB, Settings.of(config), must_exist=False) as handle:
        assert handle.election.holder() is not None
