"""Where commands have gone that came with the wheel before 1.0; this file and those that call it leave with 1.1."""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec

_WORKBENCH = "grete_workbench"


def run_moved(name: str) -> None:
    """Run the command where it is now, in a source tree, else say where; exits with 2 then."""
    now = f"{_WORKBENCH}.{name}"
    if find_spec(_WORKBENCH) is None:
        sys.exit(
            _refused(
                f"python -m grete.testing.{name} is in the source tree now: make setup there, then "
                f".venv/bin/python -m {now}"
            )
        )
    print(f"python -m grete.testing.{name} is python -m {now} now", file=sys.stderr)
    runpy.run_module(now, run_name="__main__", alter_sys=True)


def _refused(message: str) -> int:
    print(message, file=sys.stderr)
    return 2
