"""Mistakes in rewinds and in what is read next."""

from __future__ import annotations

from typing import Any

from grete.checkpoint.applied_startpoints import Applied
from grete.container import rewind
from grete.metadata import startpoint_hand_over as hand_over
from grete.tasks.read_order import ReadOrder
from grete_workbench.simulator.plants import Plant, Replaced


def _deleted_when_handed_over(replaced: Replaced) -> None:
    replaced(hand_over, "_left", lambda fan_outs, tasks, applied: {})


def _applied_again(replaced: Replaced) -> None:
    left = hand_over._left
    replaced(hand_over, "_left", lambda fan_outs, tasks, applied: left(fan_outs, tasks, {}))
    step = rewind._Rewind.step

    def forgetful(self: Any, task: Any, before: Any) -> Any:
        self._applied = {}
        return step(self, task, before)

    replaced(rewind._Rewind, "step", forgetful)


def _note_forgotten(replaced: Replaced) -> None:
    replaced(
        rewind, "applied_entry", lambda task, applied, *, grouper: _ENTRY(task, Applied({}), grouper=grouper)
    )


_ENTRY = rewind.applied_entry


def _new_partitions_first(replaced: Replaced) -> None:
    replaced(ReadOrder, "_behind_origins", lambda self, positions: set())


PLANTS = {
    "startpoint-deleted-early": Plant(
        "a startpoint is deleted when it is handed over, not when it was applied (SAMZA-2749)",
        _deleted_when_handed_over,
        ("rewind", "kill-container", "die-before"),
    ),
    "startpoint-applied-again": Plant(
        "a startpoint is applied at every start of its container",
        _applied_again,
        ("rewind", "kill-container"),
    ),
    "startpoint-not-noted": Plant(
        "offsets move, and the checkpoint does not say by which startpoint", _note_forgotten, ("rewind",)
    ),
    "new-partitions-first": Plant(
        "added partitions are read before what their keys had before", _new_partitions_first, ("expand",)
    ),
}
