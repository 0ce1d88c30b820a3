"""Strings read as Java reads them, since Samza's configuration values are what `Integer.parseInt` and friends accept.

Checked against OpenJDK 17, messages included: the vectors carry them. One known difference: JDK 17 does not always
print the shortest decimal of a double (1e23 comes out as 9.999999999999999E22); `double_text` does.
"""

from __future__ import annotations

import re
import unicodedata

_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_DECIMAL = re.compile(r"[+-]?(NaN|Infinity|(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?)")
_TWO_POINTS = re.compile(r"[+-]?[0-9]*\.[0-9]*\.")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_TRIMMED = "".join(map(chr, range(0x21)))
"""Removed by `String.trim`: everything up to and including the space, and nothing else."""


class NumberFormatError(ValueError):
    """Java's NumberFormatException; the message is Java's."""


def trim(text: str) -> str:
    """`String.trim`: control characters and spaces go, a non-breaking space stays."""
    return text.strip(_TRIMMED)


def _whole_number(text: str, limits: tuple[int, int]) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    low, high = limits
    # Java takes every Unicode decimal digit, but no underscore and no blank, both of which int() takes.
    if not digits or any(unicodedata.category(c) != "Nd" for c in digits) or len(digits.lstrip("0")) > 19:
        raise NumberFormatError(f'For input string: "{text}"')
    value = int(text)
    if not low <= value <= high:
        raise NumberFormatError(f'For input string: "{text}"')
    return value


def parse_int(text: str) -> int:
    """`Integer.parseInt`."""
    return _whole_number(text, _INT)


def parse_long(text: str) -> int:
    """`Long.parseLong`."""
    return _whole_number(text, _LONG)


def parse_double(text: str) -> float:
    """`Double.parseDouble`: trims, takes a trailing f or d and hexadecimal with an exponent."""
    trimmed = trim(text)
    if not trimmed:
        raise NumberFormatError("empty String")
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed if trimmed.endswith(("NaN", "Infinity")) else trimmed.rstrip("fFdD"))
    hexadecimal = _HEXADECIMAL.fullmatch(trimmed)
    if _TWO_POINTS.match(trimmed):
        raise NumberFormatError("multiple points")
    if hexadecimal is None:
        raise NumberFormatError(f'For input string: "{trimmed}"')
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return float("-inf" if trimmed.startswith("-") else "inf")


def double_text(value: float) -> str:
    """`String.valueOf(double)`: plain from 0.001 up to ten millions, else with an exponent."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    power = int(exponent or 0) + len(whole) - 1 - leading_zeros
    return f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{power}"


def parse_boolean(text: str) -> bool:
    """`"true".equalsIgnoreCase`: everything else is false, also "yes" and "1"."""
    return text.lower() == "true"


def split_list(text: str) -> list[str] | None:
    r"""`split("\\s*,\\s*")`: trailing empty items vanish, a blank text has no list at all."""
    if not trim(text):
        return None
    items = _COMMA.split(text)
    while items and not items[-1]:
        items.pop()
    return items


def split_commas(text: str) -> list[str]:
    """`split(",")` and `trim` on each item: trailing empty items vanish, empty ones in between stay."""
    items = text.split(",")
    while items and not items[-1]:
        items.pop()
    return [trim(item) for item in items]
