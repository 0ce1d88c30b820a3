"""Docstrings are Markdown, as everything written here, and autodoc reads reStructuredText: made of the former."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][\w.]*(\(\))?")
_OF_REQUIREMENTS = re.compile(r"\s\(S\d-\d+\)")
_DRAWN = re.compile(r"\s*[├└│]")
_ITEM = re.compile(r"\s*(- |\d+\. )")


def setup(app: Sphinx) -> dict[str, Any]:
    """Before napoleon, which divides the docstring into sections."""
    app.connect("autodoc-process-docstring", _convert, priority=400)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}


def converted(lines: list[str]) -> list[str]:
    """The docstring as reStructuredText: paragraph by paragraph, so that what is literal stays so."""
    paragraphs = re.split(r"\n\s*\n", _OF_REQUIREMENTS.sub("", "\n".join(lines)).strip("\n"))
    return [line for one in paragraphs for line in (*_paragraph(one.split("\n")), "")]


def _paragraph(lines: list[str]) -> Iterator[str]:
    if any(_DRAWN.match(line) for line in lines) or all(line.startswith("    ") for line in lines):
        yield from ("::", "", *(f"    {line}" for line in lines))
    else:
        yield from _with_lists(_marked("\n".join(lines)).split("\n"))


def _marked(text: str) -> str:
    parts, end = [], 0
    for found in _CODE.finditer(text):
        parts += [_escaped(text[end : found.start()]), _code(found[2], text[found.end() :][:1])]
        end = found.end()
    return "".join([*parts, _escaped(text[end:])])


def _code(code: str, following: str) -> str:
    """A name becomes a link, where this site has it; anything else is literal."""
    words = " ".join(code.split())
    marked = f":py:obj:`{words}`" if _NAME.fullmatch(words) else f"``{words}``"
    return f"{marked}\\ " if following.isalnum() else marked


def _escaped(text: str) -> str:
    return re.sub(r"(?<!\*)\*(?![*\s])|(?<=\w)_(?!\w)|\|", lambda found: f"\\{found[0]}", text)


def _with_lists(lines: list[str]) -> Iterator[str]:
    """A list begins and ends behind an empty line."""
    before = ""
    for line in lines:
        if _ITEM.match(line) and before.strip() and not _ITEM.match(before) and not before.startswith("  "):
            yield ""
        yield line
        before = line


def _convert(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = converted(lines)


def _signature(
    app: Sphinx, what: str, name: str, obj: Any, options: object, signature: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """Nobody makes a protocol or calls a suite's test: how that would be done says nothing."""
    if what == "class" and (getattr(obj, "_is_protocol", False) or signature in ("()", "(*args, **kwargs)")):
        return "", None
    return ("", None) if name.rpartition(".")[2].startswith("test_") else None
