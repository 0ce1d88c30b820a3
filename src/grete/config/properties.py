"""java.util.Properties, read as Java reads it: escapes, continuation lines, three separators."""

from __future__ import annotations

from collections.abc import Iterator

from grete.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


def parse_properties(text: str, *, origin: str) -> dict[str, str]:
    """Keys and values; the last of two equal keys wins.

    Raises:
        ConfigError: a malformed \\uXXXX escape; names the line.
    """
    config: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            config[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise ConfigError(f"{origin}, line {number}: {error}") from error
    return config


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined over trailing backslashes, comments and blank lines left out, with the number of the first."""
    joined, start = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANK)
        if not joined:
            if not line or line[0] in "#!":
                continue
            start = number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            joined += line[:-1]
            if not joined:
                joined = ""
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in f"=:{_BLANK}":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, position = [], 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position >= len(text):
            if char != "\\":
                out.append(char)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                raise ValueError("Malformed \\uxxxx encoding.")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    joined = "".join(out)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
