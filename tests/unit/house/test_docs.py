"""References of the documents exist: files, tests, keys of the Makefile; and they hold no machine's paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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


PROSE = [path for path in sorted(ROOT.glob("docs/*.md")) if path.name not in ("claims.md", "ported-tests.md")]


@pytest.mark.parametrize("document", PROSE, ids=lambda path: path.name)
def test_names_of_tests_stand_with_the_claims_and_not_in_the_prose(document: Path) -> None:
    text = document.read_text()
    named = sum(map(len, re.findall(r"`tests/[^`]+`", text)))
    assert named / len(text) < 0.02


def test_every_claim_is_of_a_section_that_there_is() -> None:
    rows = re.findall(
        r"^\| \[[^]]*\]\(([\w-]+\.md)#([^)]+)\)", (ROOT / "docs/claims.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 300
    sections = {path.name: anchors(path.read_text()) for path in ROOT.glob("docs/*.md")}
    assert [row for row in rows if row[1] not in sections[row[0]]] == []


def anchors(text: str) -> set[str]:
    """What links to headings say, as the usual renderers make them."""
    headings = re.findall(r"^#{1,4} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
