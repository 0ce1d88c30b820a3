"""`make docs-site`: bring the pages together under `build`, and let Sphinx make the site of them.

Pages keep the paths that they have in the repository, so links between them hold on a Git host and here. Those of
`docs/site`, which only the site has, come to the top. A file that a page links to and that is no page comes along.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).resolve().parents[2]
OWN = Path(__file__).resolve().parent
BUILD = ROOT / "build"
PAGES, SITE, READ = BUILD / "site-pages", BUILD / "site", BUILD / "site-read"
UNDER_DECISIONS = """
```{toctree}
:hidden:
:glob:

0*
```
"""
"""Behind the index of decisions, where a Git host would show it as it is written."""
_LINK = re.compile(r"\]\(([^)#\s:]+)[^)]*\)")


def pages() -> Iterator[tuple[Path, Path]]:
    """Each page, and where it comes."""
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/diagrams/*.svg")):
        if OWN not in page.parents:
            yield page, page.relative_to(ROOT)
    for page in (*OWN.rglob("*.md"), *OWN.rglob("*.rst")):
        yield page, page.relative_to(OWN)


def linked(page: Path) -> Iterator[tuple[Path, Path]]:
    """The files that a page links to."""
    if page.suffix == ".md":
        for link in _LINK.findall(page.read_text()):
            target = (page.parent / link).resolve()
            if target.is_file() and target.suffix not in (".md", ".svg"):
                yield target, target.relative_to(ROOT)


def bring_together() -> None:
    """Copy what has changed, and remove what is gone, so that Sphinx reads only the former again."""
    found = dict(pages())
    found |= {source: place for page in tuple(found) for source, place in linked(page)}
    wanted = {PAGES / place for place in found.values()}
    for old in [one for one in PAGES.rglob("*") if one.is_file() and one not in wanted]:
        old.unlink()
    for source, place in found.items():
        copy = PAGES / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes()
        if place == Path("docs/decisions/README.md"):
            content += UNDER_DECISIONS.encode()
        if not copy.exists() or copy.read_bytes() != content:
            copy.write_bytes(content)


def main(more: list[str]) -> int:
    """Build anew, since pages that were read before warn no more; a warning, as of a broken link, is an error."""
    bring_together()
    words = ["-q", "-E", "-W", "--keep-going", "-b", "html", "-c", str(OWN), "-d", str(READ), *more]
    code = sphinx([*words, str(PAGES), str(SITE)])
    if code == 0:
        print(f"{SITE.relative_to(ROOT)}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
