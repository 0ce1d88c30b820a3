"""References of the documents exist: files, tests, keys of the Makefile; and they hold no machine's paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NAMES = [str(document.relative_to(ROOT)) for document in DOCUMENTS]


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_every_test_that_is_named_exists(document: Path) -> None:
    named = re.findall(r"`((?:tests|src)/[\w/]+\.py)(?:::(\w+))?`", document.read_text())
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists() or (test and f"def {test}(" not in (ROOT / path).read_text())
    ]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_every_make_target_that_is_named_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z]+(?:-[a-z]+)?)", document.read_text(), re.MULTILINE))
    assert named <= targets
