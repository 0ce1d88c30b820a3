"""Runs the checks over files and reports the first difference of each."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grete.errors import GreteError
from grete_workbench.vectors import registry

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
        difference = "".join(map(_printable, self.first_difference))
        return f"failed {self.name}: {self.failed} of {self.cases}; first difference: {difference}"


def _printable(character: str) -> str:
    """A line is one line, whatever a file holds."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _load_checks() -> None:
    package = importlib.import_module("grete_workbench.vectors")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith(_MODULE_ENDING):
            importlib.import_module(f"{package.__name__}.{module.name}")


def check_file(path: Path) -> FileResult:
    """Check every case of one file."""
    _load_checks()
    name = path.name.removesuffix(".json")
    by_name = registry.find(name)
    try:
        cases = _cases(path)
    except (OSError, ValueError, RecursionError) as error:
        return FileResult(path.name, 0, 0, f"not a file of cases: {error!r}")
    registry.begin_file(cases)
    failures = [(i, text) for i, case in enumerate(cases) if (text := _difference(by_name, case)) is not None]
    first = f"case {failures[0][0]}: {failures[0][1]}" if failures else "" if cases else "there are no cases"
    return FileResult(path.name, len(cases), len(failures), first)


def _cases(path: Path) -> list[dict[str, Any]]:
    """The cases of a file.

    Raises:
        ValueError: it is no JSON document {"cases": [{...}, ...]}.
    """
    document = json.loads(path.read_bytes())
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise ValueError('it has no list "cases" of objects')
    return cases


def _difference(by_name: registry.Check | None, case: registry.Case) -> str | None:
    check = by_name or registry.find_by_case(case)
    if check is None:
        return f"no check for files of this name, and none for {_kind(case)}"
    try:
        check(_without_words(case))
    except registry.Difference as difference:
        return str(difference)
    except GreteError as error:
        if registry.throws(case.get("result")):
            return None
        return f"{type(error).__name__}: {error}"
    except KeyError as error:
        return f"a case of {_kind(case)} without the field {error}, or with a name in it that is not known"
    except Exception as error:  # noqa: BLE001 - one case that breaks our code must not hide the others
        return f"{type(error).__name__}: {error}"
    return None


def _without_words(value: Any) -> Any:
    """Without what refusals say: a refusal in other words is one."""
    if isinstance(value, list):
        return [_without_words(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {"throws"} if registry.throws(value) else value.keys()
    return {key: _without_words(one) for key, one in value.items() if key in kept}


def _kind(case: registry.Case) -> str:
    return f"the operation {case['op']!r}" if "op" in case else f"cases with the fields {', '.join(case)}"


def check_directory(directory: Path) -> Iterator[FileResult]:
    """Check every `.json` file of a directory, in name order."""
    for path in sorted(directory.glob("*.json")):
        yield check_file(path)
