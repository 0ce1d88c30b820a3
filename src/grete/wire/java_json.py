"""JSON as Samza's Jackson writes and reads it (jackson-databind 2.13.3): compact, its escapes, its tolerance.

Written: `\\" \\\\ \\b \\f \\n \\r \\t`, other characters below 0x20 as `\\u00XX` with upper-case hex, everything else
raw, a lone surrogate as `?`. Read: text after the first value is ignored, the last of two equal keys wins; NaN is
refused. Depth and size are bounded here, which Jackson does not do.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from grete.errors import WireError
from grete.wire import compact_json

_LOWER_HEX = re.compile(r"(?<!\\)((?:\\\\)*\\u00)([0-9a-f]{2})")
_MAX_BYTES = 64 * 1024 * 1024
_MAX_DEPTH = 64


def dumps(value: Any) -> bytes:
    """Serialise dicts (in their order), lists, str, int, bool, None and float."""
    try:
        fast = compact_json.dumps(value)
        if b"\\u00" not in fast:
            return fast
    except orjson.JSONEncodeError:
        pass  # a lone surrogate or a big integer: the slow way knows what Java makes of it
    text = slow_text(value)
    if "\\u00" in text:
        text = _LOWER_HEX.sub(lambda match: match[1] + match[2].upper(), text)
    return text.encode("utf-8", errors="replace")


def slow_text(value: Any) -> str:
    """JSON of what orjson refuses too, escapes as Python writes them.

    Raises:
        WireError: a NaN, or a kind of value that JSON has not.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"cannot be written as JSON: {error}") from error


def pretty(value: Any, indent: str = "") -> str:
    """As Jackson's default pretty printer: objects over lines, arrays on one."""
    deeper = indent + "  "
    if isinstance(value, dict):
        if not value:
            return "{ }"
        lines = [f"{deeper}{dumps(key).decode()} : {pretty(child, deeper)}" for key, child in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        return f"[ {', '.join(pretty(child, indent) for child in value)} ]" if value else "[ ]"
    return dumps(value).decode()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def loads(data: bytes, *, max_bytes: int = _MAX_BYTES, max_depth: int = _MAX_DEPTH) -> Any:
    """Parse the first JSON value in `data`.

    Raises:
        WireError: not UTF-8, not JSON, too long or nested too deep.
    """
    if len(data) > max_bytes:
        raise WireError(f"{len(data)} bytes of JSON, at most {max_bytes} are read")
    try:
        text = data.decode("utf-8").lstrip(" \t\r\n")
        value, _ = _decoder.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    check_depth(value, max_depth)
    return value


def loads_quickly(data: bytes) -> Any:
    """As `loads`, ten times as fast for what every writer writes: a stream has millions of these.

    Raises:
        WireError: as `loads`.
    """
    if len(data) < PLAIN_BYTES:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass  # text after the document, a lone surrogate, garbage: the slow way knows which
    return loads(data)


PLAIN_BYTES = 1024 * 1024
"""Beyond it depth counts, which orjson does not bound as `loads` does."""


def check_depth(value: Any, left: int) -> None:
    """Refuse nesting deeper than `left` levels.

    Raises:
        WireError: it is deeper.
    """
    level = [value]
    for _ in range(left + 1):
        level = [child for item in level if isinstance(item, dict | list) for child in _children(item)]
        if not level:
            return
    raise WireError(f"JSON nested deeper than {left} levels")


def _children(item: dict[str, Any] | list[Any]) -> Any:
    return item.values() if isinstance(item, dict) else item
