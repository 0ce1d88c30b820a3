"""Names of nodes. All are below `/grete`, itself below the path that the addresses end with."""

from __future__ import annotations

from urllib.parse import quote, unquote

LEADERSHIPS = "/grete/leaderships"
CELLS = "/grete/cells"
_DOTS = {".": "%2E", "..": "%2E%2E"}
"""What ZooKeeper takes for parts of a path that lead elsewhere."""


def node_name(text: str) -> str:
    """The name of one node for any text that is not empty."""
    return _DOTS.get(text) or quote(text, safe="")


def text_of(name: str) -> str:
    """The text that `node_name` was given."""
    return unquote(name)
