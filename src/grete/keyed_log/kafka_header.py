"""The header that each of our records on Kafka carries. Samza's JVM classes ignore headers.

`grete` = `<remaining> <epoch or -> <append id> <scope>`: how many entries of the append follow this one, the fence's
epoch, the id by which an append in doubt is found again, and the fence's scope. A record without it is foreign.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple
from urllib.parse import quote, unquote

NAME = "grete"


class AppendOrigin(NamedTuple):
    """The part that all entries of an append share."""

    epoch: int | None
    append_id: str
    scope: str


def encode(origin: AppendOrigin) -> bytes:
    """The header without its first word, to be completed for each entry by `with_remaining`."""
    epoch = "-" if origin.epoch is None else str(origin.epoch)
    return f"{epoch} {quote(origin.append_id)} {origin.scope}".encode()


def with_remaining(remaining: int, encoded: bytes) -> bytes:
    """The header of one entry."""
    return b"%d %s" % (remaining, encoded)


def of_one(epoch: int, scope: str) -> bytes:
    """The header of a record that is an append of its own, under the scope's fence."""
    return with_remaining(0, encode(AppendOrigin(epoch, uuid.uuid4().hex, scope)))


def split(header: bytes) -> tuple[int, bytes] | None:
    """(remaining, the rest) of a header; None when it is not one of ours."""
    remaining, blank, rest = header.partition(b" ")
    return (int(remaining), rest) if blank and remaining.isdigit() and len(remaining) < 20 else None


def decode(rest: bytes) -> AppendOrigin | None:
    """The inverse of `encode`; None for a header of another program."""
    try:
        epoch, append_id, scope = rest.decode().split(" ", 2)
        return AppendOrigin(None if epoch == "-" else int(epoch), unquote(append_id), scope)
    except ValueError:
        return None
