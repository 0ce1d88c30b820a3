"""A part of the application that does not end is named while it lasts."""

from __future__ import annotations

import logging

import pytest

from grete.container.slow_calls import logged_while_it_runs
from grete.testing.waiting import eventually


def test_what_does_not_end_is_named_again_and_again_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with logged_while_it_runs("build of shop:Views", every_s=0.01):
        eventually(lambda: len(caplog.messages) > 1, "two lines")
    said = list(caplog.messages)
    assert all(line.startswith("build of shop:Views has not ended after ") for line in said)
    with logged_while_it_runs("build of shop:Views"):
        pass
    assert caplog.messages == said
