"""Runs the checks over files and tells the first difference of each."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grete.testing.vectors import registry

_MODULE_ENDING = "_cases"


@dataclass(frozen=True, slots=True)
class FileResult:
    """The outcome of one file. `first_difference` is empty when it passed."""

    name: str
    cases: int
    failed: int
    first_difference: str

    @property
    def passed(self) -> bool:
        """Whether every case of the file passed, and there was one."""
        return self.failed == 0 and self.cases > 0 and not self.first_difference

    def __str__(self) -> str:
        if self.passed:
            return f"passed {self.name} ({self.cases} cases)"
        return f"failed {self.name}: {self.failed} of {self.cases}; first difference: {self.first_difference}"


def _load_checks() -> None:
    package = importlib.import_module("grete.testing.vectors")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith(_MODULE_ENDING):
            importlib.import_module(f"{package.__name__}.{module.name}")


def check_file(path: Path) -> FileResult:
    """Check every case of one file."""
    _load_checks()
    name = path.name.removesuffix(".json")
    check = registry.find(name)
    try:
        document = json.loads(path.read_bytes())
        cases: list[dict[str, Any]] = document["cases"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return FileResult(path.name, 0, 0, f"not a file of cases: {error!r}")
    if check is None:
        return FileResult(path.name, len(cases), len(cases), "no check for files of this name")
    failures = [(i, text) for i, case in enumerate(cases) if (text := _difference(check, case)) is not None]
    first = f"case {failures[0][0]}: {failures[0][1]}" if failures else "" if cases else "there are no cases"
    return FileResult(path.name, len(cases), len(failures), first)


def _difference(check: registry.Check, case: registry.Case) -> str | None:
    try:
        check(case)
    except registry.Difference as difference:
        return str(difference)
    except Exception as error:  # noqa: BLE001 - one case that breaks our code must not hide the others
        return f"{type(error).__name__}: {error}"
    return None


def check_directory(directory: Path) -> Iterator[FileResult]:
    """Check every `.json` file of a directory, in name order."""
    for path in sorted(directory.glob("*.json")):
        yield check_file(path)
