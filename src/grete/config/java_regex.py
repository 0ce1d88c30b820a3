r"""Java's regular expressions in Python's: what configurations use of them, translated; the rest refused.

What both languages write alike and mean otherwise is translated or refused too, since another set of streams would be
chosen without a word: a class inside a class (`[a-z[0-9]]` is a union in Java), octal escapes (`\0101`), `\v`, and
the flags but `i` and `s` (`(?m)` knows other ends of lines, `(?x)` other blanks).
"""

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
_ESCAPE = re.compile(
    r"\\(?:(?P<posix>[pP])\{(?P<name>\w+)\}|0(?P<octal>[0-3]?[0-7]{1,2})|(?P<reference>[1-9][0-9]+)|.)",
    re.DOTALL,
)
_FLAGS = re.compile(r"\(\?(?P<on>[a-zA-Z]*)-?(?P<off>[a-zA-Z]*)[:)]")
_SAME_FLAGS = frozenset("is")
_SPECIAL_IN_CLASS = "[&|~"
"""Python warns of these inside a class, since it may read them as Java does one day; there they are escaped."""


def compile_java(regex: str, *, used_by: str) -> re.Pattern[str]:
    r"""A Java regular expression as a Python one: ASCII classes, `\p{Alpha}` and its like, `\z`, named groups.

    `used_by` is the key that holds it, for the error.

    Raises:
        ConfigError: it is no regular expression, or uses what Python has not (`&&` inside a class, `\p{L}`).
    """
    try:
        return re.compile(_Translation(regex).text(), re.ASCII)
    except _CannotBe as error:
        raise _refused(regex, used_by, str(error)) from None
    except (re.error, RecursionError, OverflowError) as error:
        raise _refused(regex, used_by, str(error)) from error


class _CannotBe(Exception):
    """The parts of the expression that have no counterpart."""


class _Translation:
    """One pass over an expression."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._at = 0

    def text(self) -> str:
        """The whole expression in Python's syntax."""
        out: list[str] = []
        while self._at < len(self._regex):
            if self._regex.startswith("[", self._at):
                out.append(f"[{self._class()}]")
            elif self._regex.startswith("\\", self._at):
                out.append(self._escape(in_class=False))
            elif self._regex.startswith("(?", self._at):
                out.append(self._group())
            else:
                out.append(self._regex[self._at])
                self._at += 1
        return "".join(out)

    def _group(self) -> str:
        flags = _FLAGS.match(self._regex, self._at)
        if flags is not None and not _SAME_FLAGS.issuperset(flags["on"] + flags["off"]):
            raise _CannotBe(f"the flags {flags[0]} mean something else here; only i and s are alike")
        is_named = re.compile(r"\(\?<[A-Za-z]").match(self._regex, self._at) is not None
        self._at += 3 if is_named else 2
        return "(?P<" if is_named else "(?"

    def _escape(self, *, in_class: bool) -> str:
        found = _ESCAPE.match(self._regex, self._at)
        if found is None:
            raise _CannotBe("it ends with a single backslash")
        self._at = found.end()
        if found["posix"]:
            return _posix(found["posix"] == "P", found["name"], in_class=in_class)
        if found["octal"]:
            return f"\\x{int(found['octal'], 8):02x}"
        if found["reference"] or found[0] == r"\v" or (in_class and found[0] == r"\b"):
            raise _CannotBe(f"{found[0]} means something else here")
        return {r"\z": r"\Z", r"\Z": r"(?=\n?\Z)"}.get(found[0], found[0])

    def _class(self) -> str:
        """The text between the brackets of a class, nested classes included; moves behind it."""
        self._at += 1
        negated = self._regex.startswith("^", self._at)
        self._at += negated
        out: list[str] = []
        while True:
            character = self._regex[self._at : self._at + 1]
            if not character:
                raise _CannotBe("a character class is not closed")
            if character == "]" and out:
                self._at += 1
                return "^" + "".join(out) if negated else "".join(out)
            if self._regex.startswith(("&&", "--"), self._at):
                raise _CannotBe(f"`{character * 2}` inside a character class is not supported")
            if character == "[":
                out.append(self._union("".join(out), negated=negated))
            elif character == "\\":
                out.append(self._escape(in_class=True))
            else:
                self._at += 1
                out.append(
                    f"\\{character}" if character in _SPECIAL_IN_CLASS or character == "]" else character
                )

    def _union(self, before: str, *, negated: bool) -> str:
        inner = self._class()
        after = self._regex[self._at : self._at + 2]
        is_range = before.endswith("-") or (after.startswith("-") and after != "-]")
        if negated or inner.startswith("^") or is_range or inner.startswith("-") or inner.endswith("-"):
            raise _CannotBe(
                "a class inside a class is understood as a union of two plain ones only; write one class"
            )
        return inner


def _posix(negated: bool, name: str, *, in_class: bool) -> str:
    if name not in _CLASSES or (in_class and negated):
        raise _CannotBe(f"\\p{{{name}}} is not supported here")
    return _CLASSES[name] if in_class else f"[{'^' if negated else ''}{_CLASSES[name]}]"


def _refused(regex: str, used_by: str, why: str) -> ConfigError:
    return ConfigError(f"{used_by}={regex!r} is not a regular expression grete can use: {why}")
