"""The spans of a coordinator: the submission or the fail-over that it began with, and each change of the model."""

from __future__ import annotations

import os
from collections.abc import Mapping

from grete.clock import Clock
from grete.coordinator.coordinator import RequestedRun
from grete.diagnostics.traces import Attributes, Tracer
from grete.wire.traces import TraceContext

_PARENT = "TRACEPARENT"
"""Of the environment: the trace of whoever submits, as pipelines of builds and deployments set it."""


class CoordinatorTraces:
    """Used by the coordinator's thread."""

    def __init__(
        self,
        tracer: Tracer,
        run: RequestedRun,
        epoch: int,
        clock: Clock,
        began_ms: int,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`began_ms` is when the job was submitted, or when this coordinator won the leadership of another."""
        self._tracer = tracer
        self._clock = clock
        self._run = run
        self._epoch = epoch
        self._began_ms = began_ms
        of_submitter = TraceContext.parse(environment.get(_PARENT, "")) if run.is_submitted else None
        self._parent = of_submitter
        self._beginning = tracer.begin(of_submitter) if tracer.is_on else None

    @property
    def beginning(self) -> str:
        """What containers are started for, as a `traceparent`, until the first change is over."""
        return "" if self._beginning is None else str(self._beginning)

    def changed(self, seconds: float, cause: str) -> None:
        """A change of the model is over; the first one ends the beginning."""
        now_ms = self._clock.wall_ms()
        said: Attributes = {"grete.run.id": self._run.run_id, "grete.coordinator.epoch": self._epoch}
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            why = {"grete.submit.reason": self._run.reason} if self._run.reason else {}
            name = "submit" if self._run.is_submitted else "fail-over"
            told = {**said, **why}
            self._tracer.span(name, self._began_ms, now_ms, told, context=beginning, parent=self._parent)
        why = {"grete.change.cause": cause} if cause else {}
        self._tracer.span("change", now_ms - 1000 * seconds, now_ms, {**said, **why}, parent=beginning)
