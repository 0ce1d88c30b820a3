"""Modules import each other in no circle, counting what only type checkers see."""

from __future__ import annotations

from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[3]
FACADE = ("grete", "grete.embedded.processor")
"""Imported when a program names `grete.StreamProcessor`, see `.importlinter`."""
SIMULATOR = "grete_workbench.simulator."
"""One world, whose machines, brokers and processes each hold the others: they are one subject in 15 files."""


def test_modules_import_each_other_in_no_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "src"))
    monkeypatch.syspath_prepend(str(ROOT / "workbench"))
    graph = grimp.build_graph("grete", "grete_workbench", cache_dir=None)
    imports = {
        one: {
            other
            for other in graph.find_modules_directly_imported_by(one)
            if (one, other) != FACADE and not (one.startswith(SIMULATOR) and other.startswith(SIMULATOR))
        }
        for one in graph.modules
    }
    assert len(imports) > 500
    TopologicalSorter(imports).prepare()  # CycleError names the circle
