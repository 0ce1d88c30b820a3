"""Jackson's other writer and its coercion of scalars, beside `java_json`.

`writeValueAsString` (`java_json.dumps`) leaves a character of two UTF-16 units raw; `writeValueAsBytes` escapes each
of the two. Samza writes checkpoints, checkpoint log keys and startpoints with the latter, so an offset or a stream
named with such a character has other bytes there than in a coordinator message.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from grete.errors import WireError
from grete.wire import compact_json, java_json

_CONTROL_OR_TWO_UNITS = re.compile("\\\\u00[0-9a-f]{2}|\\\\.|[\ud800-\udfff\U00010000-\U0010ffff]")
_FIRST_BYTE_OF_FOUR = 0xF0  # in UTF-8 only characters of two UTF-16 units begin with it or above


def dumps(value: Any) -> bytes:
    """Serialise as `ObjectMapper.writeValueAsBytes` does.

    Raises:
        WireError: a NaN, or a kind of value that JSON has not.
    """
    try:
        fast = compact_json.dumps(value)
        if b"\\u00" not in fast and (fast.isascii() or max(fast) < _FIRST_BYTE_OF_FOUR):
            return fast
    except orjson.JSONEncodeError:
        pass  # a lone surrogate or a big integer: the slow way knows what Java makes of it
    return _CONTROL_OR_TWO_UNITS.sub(_as_jackson, java_json.slow_text(value)).encode()


def _as_jackson(match: re.Match[str]) -> str:
    found = match[0]
    if found.startswith("\\"):
        return found[:2] + found[2:].upper()  # `\u00XX` in upper case; any other escape is two characters
    units = found.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def as_text(value: Any) -> str | None:
    """A scalar where a string belongs, as Jackson's StringDeserializer takes it; None stays None.

    Raises:
        WireError: an object or an array.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise WireError(
            f"a string belongs where {'an object' if isinstance(value, dict) else 'an array'} stands"
        )
    return java_json.dumps(value).decode()


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def loads(data: bytes) -> Any:
    """As `java_json.loads`, and a byte order mark in front is skipped, as when Jackson reads bytes.

    Raises:
        WireError: see there.
    """
    return java_json.loads(data.removeprefix(_BYTE_ORDER_MARK))
