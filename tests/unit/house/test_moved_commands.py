"""Commands that left the wheel with 1.0 are found where they have gone, for one release."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["simulator", "vectors", "failover", "plans"])
def test_a_command_that_has_moved_runs_and_says_where_it_is(name: str) -> None:
    words = [sys.executable, "-m", f"grete.testing.{name}", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert f"usage: python -m grete_workbench.{name}" in done.stdout
    assert f"is python -m grete_workbench.{name} now" in done.stderr


def test_where_there_is_no_source_tree_it_says_where_it_went() -> None:
    words = """
import sys
from importlib import util
util.find_spec = lambda name: None
from grete.testing.moved import run_moved
run_moved("simulator")
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "python -m grete.testing.simulator is in the source tree now" in done.stderr
