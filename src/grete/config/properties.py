"""java.util.Properties, read and written as Java does it: escapes, continuation lines, three separators."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from grete.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_LONE_BACKSLASH_AT_END = re.compile(r"(?:\A|[\r\n])[ \t\f]*\\(?:\r|\n)?\Z")
_SEPARATOR = re.compile(r"(?P<key>(?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
MALFORMED = "Malformed \\uxxxx encoding."
"""Java's words for a `\\u` without four hexadecimal digits."""


def parse_properties(text: str, *, origin: str) -> dict[str, str]:
    """Keys and values; the last of two equal keys wins, as in Java.

    Raises:
        ConfigError: a malformed `\\uXXXX` escape; names the line.
    """
    config: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _SEPARATOR.match(line)
        assert match is not None  # every part of the pattern may be empty
        try:
            config[_unescape(match["key"])] = _unescape(line[match.end() :])
        except ValueError as error:
            raise ConfigError(
                f"{origin}, line {number}: {error} Write \\u and four hexadecimal digits, or \\\\u for a backslash"
            ) from error
    return config


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined over trailing backslashes, comments and blank lines left out, with the number of the first.

    A comment sign means a comment only where nothing has been read of the logical line yet.
    """
    parts: list[str] = []
    start, is_lone_backslash = 0, False
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANK)
        if not any(parts):
            parts.clear()
            if not line or line[0] in "#!":
                continue
            start = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            is_lone_backslash = line == "\\" and not parts
            parts.append(line[:-1])
            continue
        yield start, "".join(parts) + line
        parts.clear()
    # Java gives an empty key for a backslash alone at the end, yet not before the two characters of a CR LF.
    if any(parts) or (is_lone_backslash and _LONE_BACKSLASH_AT_END.search(text)):
        yield start, "".join(parts)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    joined = _ESCAPE.sub(_character, text)
    # A pair of \u surrogates is one character; one on its own stays, and validation refuses it.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    if match[2] == "u":
        raise ValueError(MALFORMED)
    return _ESCAPES.get(match[2], match[2])


def format_properties(config: Mapping[str, str]) -> str:
    """The text of a `.properties` file, sorted by key. Pure ASCII, so Java and grete read the same from it."""
    lines = (
        f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}\n"
        for key, value in sorted(config.items())
    )
    return "".join(lines)


_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_SPECIAL_IN_KEY = re.compile(r"[^$%&-9;<>-\[\]-~\"]")
_SPECIAL_IN_VALUE = re.compile(r"[^ -\[\]-~]|\A ")


def _escape(text: str, *, is_key: bool) -> str:
    return (_SPECIAL_IN_KEY if is_key else _SPECIAL_IN_VALUE).sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char in _NAMED:
        return _NAMED[char]
    if " " <= char <= "~":
        return f"\\{char}"
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
