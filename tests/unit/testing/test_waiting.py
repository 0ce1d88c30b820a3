"""Waiting says what it waited for, and what was there instead."""

from __future__ import annotations

import re

import pytest

from grete.testing.waiting import eventually, reaches


def test_what_did_not_happen_is_reported_with_what_was_there_instead() -> None:
    with pytest.raises(AssertionError, match=re.escape("the end did not happen within 0 s\nstate: running")):
        eventually(lambda: False, "the end", within_s=0, context=lambda: "state: running")


def test_a_count_that_grows_is_waited_for_however_long_it_takes() -> None:
    counts = iter([0, 1, 2, 3])
    reaches(lambda: next(counts), 3, still_s=0)


def test_a_count_that_stands_still_fails_with_where_it_stands() -> None:
    with pytest.raises(
        AssertionError, match=re.escape("records: it stands at 1 of 3 since 0 s\nstate: running")
    ):
        reaches(lambda: 1, 3, "records", still_s=0, context=lambda: "state: running")
