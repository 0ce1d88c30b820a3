"""The network between containers and coordinators: requests and answers are lost, late, or come twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grete.errors import CoordinatorUnavailable, Fenced, GreteError
from grete_workbench.simulator.scheduler import Call, Killed, Process

if TYPE_CHECKING:
    from grete_workbench.simulator.world import World

_NETWORK_S = 0.01


class Network:
    """Carries requests to servers and their answers back, or not."""

    def __init__(self, world: World) -> None:
        self._world = world

    def deliver(self, process: Process, call: Call, answer: Callable[[Any], None]) -> None:
        """Carry one request; the caller goes on with the answer, or with None when its time is over."""
        faults, scheduler = self._world.faults, self._world.scheduler
        once = _Once(answer)
        scheduler.after(call.timeout_s, lambda: once(None))
        for _ in range(2 if faults.strikes("repeated") else 1):
            if not faults.strikes("request-lost"):
                scheduler.after(self._latency_s(), lambda: self._arrive(call, once))

    def _latency_s(self) -> float:
        delayed = self._world.faults.strikes("delayed")
        return self._world.chance.uniform(0.1, 8.0) if delayed else _NETWORK_S

    def _arrive(self, call: Call, answer: _Once) -> None:
        server = call.server()
        if server is None or not server.process.is_running:
            return
        try:
            reply: Any = server.serve(call.request)
        except (Fenced, CoordinatorUnavailable) as error:
            reply = error
        except GreteError as error:
            self._world.note(f"{server.process.name} answers with an error: {error}")
            return
        except Killed:
            server.process.kill()
            return
        if not self._world.faults.strikes("answer-lost"):
            self._world.scheduler.after(self._latency_s(), lambda: answer(reply))


class _Once:
    """The caller goes on with the first answer, or without one; later ones are dropped."""

    def __init__(self, answer: Callable[[Any], None]) -> None:
        self._answer: Callable[[Any], None] | None = answer

    def __call__(self, value: Any) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(value)
