"""Of a campaign's cases one in so many is of every run, always the same ones; the rest is of the night."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.plugin import _is_of_every_run


def case(marker: int | None, **indices: int) -> Any:
    def get_closest_marker(name: str) -> Any:
        return SimpleNamespace(args=(marker,)) if name == "one_in" and marker is not None else None

    spec = {"callspec": SimpleNamespace(indices=indices)} if indices else {}
    return SimpleNamespace(get_closest_marker=get_closest_marker, **spec)


@pytest.mark.parametrize(
    ("marker", "indices", "found"),
    [
        (None, {"point": 4}, True),
        (3, {}, True),
        (3, {"point": 0}, True),
        (3, {"point": 1}, False),
        (3, {"point": 2}, False),
        (3, {"point": 3}, True),
        (2, {"point": 1, "system": 1}, True),
        (2, {"point": 1, "system": 0}, False),
    ],
)
def test_the_first_case_and_each_so_manieth_after_it_are_of_every_run(
    marker: int | None, indices: dict[str, int], found: bool
) -> None:
    assert _is_of_every_run(case(marker, **indices)) is found
