"""What a release promises: one version everywhere, public names that are there, licences that are named."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

import grete

ROOT = Path(__file__).parents[3]
STABLE = (ROOT / "docs/stability.md").read_text()
_NAME = re.compile(r"`(grete(?:\.\w+)*)`")
_DIRECTIVE = re.compile(r"^\.\. auto(?:class|module|function|exception):: (grete[\w.]*)", re.MULTILINE)


def promised() -> list[str]:
    return sorted(
        {name for line in STABLE.splitlines() if line.startswith("|") for name in _NAME.findall(line)}
    )


def documented() -> list[str]:
    return sorted(
        {n for page in (ROOT / "docs/site/api").glob("*.rst") for n in _DIRECTIVE.findall(page.read_text())}
    )


def test_the_newest_entry_of_the_changelog_is_the_version() -> None:
    numbered = re.findall(
        r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert numbered[0] == grete.__version__ == project["version"]


@pytest.mark.parametrize("name", promised())
def test_what_is_promised_is_there(name: str) -> None:
    assert found(name) is not None


@pytest.mark.parametrize("name", documented())
def test_each_page_of_the_api_is_of_something_promised(name: str) -> None:
    """A module that is promised promises its public names; a package those of its modules."""
    assert any(name == one or name.startswith(f"{one}.") for one in promised()), name


def found(name: str) -> object:
    """A module, or a name in one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, member = name.rpartition(".")
        return getattr(importlib.import_module(module), member)


def test_every_library_that_an_installation_brings_is_in_the_notice() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    notice = (ROOT / "NOTICE").read_text()
    asked = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    names = {re.split(r"[^A-Za-z0-9_.-]", one)[0] for one in asked}
    assert "urllib3" in names
    assert not [name for name in names if f"\n- {name}: " not in notice]
