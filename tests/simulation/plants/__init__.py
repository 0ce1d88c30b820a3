"""Mistakes that the simulator has to find, each a mutation of the product that is in force while a seed runs.

One module a part of the product. `python -m grete_workbench.simulator --list-plants` shows them all.
"""

from __future__ import annotations

from collections.abc import Mapping

from grete_workbench.simulator.plants import Plant

from . import commit, control, leadership, log, model, processors, rewinds, shares, state

PLANTS: Mapping[str, Plant] = {
    **log.PLANTS,
    **leadership.PLANTS,
    **commit.PLANTS,
    **state.PLANTS,
    **control.PLANTS,
    **model.PLANTS,
    **rewinds.PLANTS,
    **shares.PLANTS,
    **processors.PLANTS,
}
