"""Planted bugs: mutations of the product that the simulator has to find. They live in the test tree only.

`tests/simulation/plants` holds them: a package whose `PLANTS` maps a name to a `Plant`. A plant replaces functions
of the product while a seed runs, so that what is tried is the product with exactly one mistake in it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grete.errors import GreteError
from grete.suggestions import or_one_of

PLACE = Path("tests") / "simulation" / "plants"
_MODULE = "grete_simulator_plants"


class NoPlants(GreteError):
    """The test tree is not there, or has no plant of this name."""


class Replaced:
    """Attributes replaced for a while."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def __call__(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of a class or module that exists."""
        self._before.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back."""
        while self._before:
            owner, name, value = self._before.pop()
            setattr(owner, name, value)


@dataclass(frozen=True, slots=True)
class Plant:
    """One mistake. It is found within `seeds` seeds that have faults of the kinds in `emphasis`."""

    what: str
    apply: Callable[[Replaced], None]
    emphasis: tuple[str, ...] = ()
    seeds: int = 1_000
    """Rare ones are found in 1 of 200, and any change to the product gives every seed another life."""
    embedded: bool = False
    """Whether it is in what stream processors do, and the seeds are of jobs of these."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The product makes this mistake."""
        replaced = Replaced()
        try:
            self.apply(replaced)
            yield
        finally:
            replaced.undo()


def load_plants(root: Path | None = None) -> Mapping[str, Plant]:
    """The plants of the test tree: below `root`, else beside the sources, else below the working directory.

    Raises:
        NoPlants: there is no test tree.
    """
    roots = [Path(__file__).resolve().parents[4], Path.cwd()] if root is None else [root]
    for candidate in roots:
        path = candidate / PLACE / "__init__.py"
        if path.is_file():
            return _import(path)
    raise NoPlants(
        f"planted bugs need the test tree, and there is no {PLACE} in {' or '.join(map(str, roots))}; "
        f"run this in a checkout of the sources"
    )


def _import(path: Path) -> Mapping[str, Plant]:
    if _MODULE not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            _MODULE, path, submodule_search_locations=[str(path.parent)]
        )
        assert spec is not None, "a file that is there has a spec"
        assert spec.loader is not None, "a Python file has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[_MODULE] = module
        spec.loader.exec_module(module)
    plants: Mapping[str, Plant] = sys.modules[_MODULE].PLANTS
    return plants


def find_plant(name: str) -> Plant:
    """The plant of this name.

    Raises:
        NoPlants: there is none, or no test tree.
    """
    plants = load_plants()
    if name not in plants:
        raise NoPlants(f"there is no plant {name!r}{or_one_of(name, plants, 'there are')}")
    return plants[name]
