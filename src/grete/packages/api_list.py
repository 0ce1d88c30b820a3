"""The list of what an application shares with the framework, in the API package: a name a line, as Samza's.

A line may hold wildcards (`grete.model.*`); blank lines mean nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import grete
from grete.application.start import API
from grete.errors import PackageError

NAME = "samza-framework-api-classes.txt"
PUBLIC = ("grete", "grete.api")
"""Modules that an application imports: the list is of their names."""
MODULES = (*API, "grete.application.start")
"""The modules of the package: those that an application's process may have, and the first one of such a process."""
_QUERY = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
public, modules = (text.split(",") for text in sys.argv[2:])
for name in modules:
    importlib.import_module(name)
named = {
    f"{value.__module__}.{value.__qualname__}"
    for root in public for name, value in vars(sys.modules[root]).items()
    if not name.startswith("_") and callable(value)
    and getattr(value, "__module__", "").partition(".")[0] == "grete"
}
print(json.dumps({
    "modules": sorted(name for name in sys.modules if name.partition(".")[0] == "grete"),
    "others": sorted(
        name for name in sys.modules if "." not in name and name != "grete"
        and name not in sys.stdlib_module_names and not name.startswith("__")
    ),
    "public": sorted(named),
}))
"""


@dataclass(frozen=True, slots=True)
class Api:
    """Modules of the API, names of packages beyond the standard library that they import, and public names."""

    modules: tuple[str, ...]
    others: tuple[str, ...]
    public: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApiList:
    """The names of an API list."""

    patterns: Sequence[str]

    def has(self, name: str) -> bool:
        """Is a class or module, by its full name, shared?"""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)


def read_api_list(lib: Path) -> ApiList:
    """The list in the `lib` folder of an API package.

    Raises:
        PackageError: there is none, or it names nothing.
    """
    path = lib / NAME
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PackageError(
            f"cannot read the list of the API, {path}: {error}; build it with `grete package build api`"
        ) from error
    patterns = tuple(line.strip() for line in lines if line.strip())
    if not patterns:
        raise PackageError(f"{path} names nothing; build it again with `grete package build api`")
    return ApiList(patterns)


def source_folder() -> Path:
    """The folder that has this grete's package."""
    return Path(grete.__file__).resolve().parents[1]


def api() -> Api:
    """The API of this grete: what an interpreter that imports nothing else has loaded afterwards."""
    done = subprocess.run(  # noqa: S603 - our own interpreter and words, no shell
        [
            sys.executable,
            "-I",
            "-S",
            "-B",
            "-c",
            _QUERY,
            str(source_folder()),
            ",".join(PUBLIC),
            ",".join(MODULES),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return Api(**{name: tuple(values) for name, values in json.loads(done.stdout).items()})
