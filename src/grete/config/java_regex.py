"""Java's regular expressions in Python's: what configurations use of them, translated; the rest refused."""

from __future__ import annotations

import re

from grete.errors import ConfigError

_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r" \t\n\x0b\f\r",
    "XDigit": "0-9a-fA-F",
}
_SYNTAX = re.compile(r"\\([pP])\{(\w+)\}|\\z|\\Z|\(\?<(?=[A-Za-z])|\\.|\[|\]|&&", re.DOTALL)


def compile_java(regex: str, *, used_by: str) -> re.Pattern[str]:
    r"""A Java regular expression as a Python one: ASCII classes, `\p{Alpha}` and its like, `\z`, named groups.

    `used_by` is the key that holds it, for the error.

    Raises:
        ConfigError: it is no regular expression, or uses what Python has not (`&&` inside a class, `\p{L}`).
    """
    out: list[str] = []
    position, in_class = 0, False
    for match in _SYNTAX.finditer(regex):
        out.append(regex[position : match.start()])
        position = match.end()
        piece = match[0]
        in_class = (in_class or piece == "[") and piece != "]"
        if match[1]:
            piece = _posix(match[1] == "P", match[2], in_class, regex, used_by)
        elif piece == "\\z":
            piece = r"\Z"
        elif piece == "\\Z":
            piece = r"(?=\n?\Z)"
        elif piece == "(?<":
            piece = "(?P<"
        elif piece == "&&" and in_class:
            raise _refused(regex, used_by, "`&&` inside a character class is not supported")
        out.append(piece)
    try:
        return re.compile("".join(out) + regex[position:], re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise _refused(regex, used_by, str(error)) from error


def _posix(negated: bool, name: str, in_class: bool, regex: str, used_by: str) -> str:
    if name not in _CLASSES or (in_class and negated):
        raise _refused(regex, used_by, f"\\p{{{name}}} is not supported here")
    return _CLASSES[name] if in_class else f"[{'^' if negated else ''}{_CLASSES[name]}]"


def _refused(regex: str, used_by: str, why: str) -> ConfigError:
    return ConfigError(f"{used_by}={regex!r} is not a regular expression grete can use: {why}")
