"""What programs in strings, documents and examples import from grete is there.

A program that a test writes into a file is text to the linters: when classes were renamed,
`tests/fault/test_kill_rewind.py` went on importing the old name and only the whole run said so.
"""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLACES = ["tests", "examples", "benchmarks", "workbench", "docs"]

IMPORT = re.compile(r"\bfrom (grete(?:\.\w+)*) import (\([^)]*\)|[^\n;\"']+)")
NAME = re.compile(r"\w+")

# a class of an error from a newer version
INVENTED = {"grete.errors SomethingNew"}


def imported(text: str) -> set[tuple[str, str]]:
    """Each module of grete with each name that the text imports from it."""
    found = set()
    for module, names in IMPORT.findall(text):
        for part in names.strip("()").replace("\\n", " ").split(","):
            name = part.split("#")[0].split(" as ")[0].strip()
            if NAME.fullmatch(name):
                found.add((module, name))
    return found


def is_there(module: str, name: str) -> bool:
    try:
        if hasattr(importlib.import_module(module), name):
            return True
        importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


def files() -> list[Path]:
    found = [ROOT / "README.md"]
    for place in PLACES:
        found += [
            path for path in (ROOT / place).rglob("*") if path.suffix in {".py", ".md", ".rst", ".ipynb"}
        ]
    return found


def test_every_name_that_text_imports_from_grete_is_there() -> None:
    wanted: dict[tuple[str, str], str] = {}
    for file in files():
        for name in imported(file.read_text(encoding="utf-8")):
            wanted.setdefault(name, str(file.relative_to(ROOT)))
    gone = [
        f"{file}: from {module} import {name}"
        for (module, name), file in sorted(wanted.items())
        if f"{module} {name}" not in INVENTED and not is_there(module, name)
    ]
    assert len(wanted) > 500
    assert not gone, "\n".join(gone)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from grete.testing import counting", {("grete.testing", "counting")}),
        ("x = 'from grete.api import (\\n  A,\\n  B as C,\\n)'", {("grete.api", "A"), ("grete.api", "B")}),
    ],
)
def test_imports_are_seen_in_code_and_in_strings(text: str, found: set[tuple[str, str]]) -> None:
    assert imported(text) == found
