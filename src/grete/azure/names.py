"""Any text as the name of a blob or the key of a row, which allow less: readable, and no two texts have one name.

Samza removes what is not allowed, so that the jobs `a-b` and `ab` have one blob and one leader (S3-15).
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")


def escaped(text: str) -> str:
    """`text` with every character but letters, digits, `_` and `-` as `=` and the hex of its UTF-8 bytes."""
    return "".join(
        one if _PLAIN.fullmatch(one) else "".join(f"={byte:02X}" for byte in one.encode()) for one in text
    )


def unescaped(name: str) -> str:
    """The text that `escaped` made `name` of."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name).encode("latin-1").decode()
