"""Benchmarks and examples keep up with the product, though no other test runs all of them."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.rebalance import least_moves

ROOT = Path(__file__).parents[3]
FILES = sorted(
    str(path.relative_to(ROOT)) for name in ("benchmarks", "examples") for path in (ROOT / name).rglob("*.py")
)


@pytest.mark.parametrize("file", FILES)
def test_everything_that_it_imports_of_grete_exists(file: str) -> None:
    """`make bench` once ended half-way, since a function that a container of it called had another name."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "grete":
            module = importlib.import_module(str(node.module))
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing or all(
                importlib.util.find_spec(f"{node.module}.{name}") for name in missing
            ), missing


@pytest.mark.parametrize("module", ["run", "executors"])
def test_a_benchmark_is_imported_first(module: str) -> None:
    """All of them ended at a circle of imports once, which depends on who begins."""
    done = subprocess.run(
        [sys.executable, "-c", f"import benchmarks.{module}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("shares", "living", "least"),
    [
        ({1: 10}, [1], 0),
        ({1: 10}, [1, 2], 5),
        ({1: 5, 2: 5}, [1, 2, 3], 3),
        ({1: 4, 2: 3, 3: 3}, [1, 2], 3),
        ({1: 4, 2: 3, 3: 3}, [2, 3], 4),
        ({1: 334, 2: 333, 3: 333}, [1, 2], 333),
    ],
)
def test_a_rebalance_is_compared_with_the_fewest_moves_possible(
    shares: dict[int, int], living: list[int], least: int
) -> None:
    owners = [owner for owner, count in shares.items() for _ in range(count)]
    before = {f"Partition {number}": owner for number, owner in enumerate(owners)}
    assert least_moves(before, living) == least
