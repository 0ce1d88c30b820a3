"""How a coordinator's server is asked in these tests."""

from __future__ import annotations

from grete.server.rights import Tokens

TOKENS = Tokens("r3ad", "wr1te", "c0ntainer")


def headers(path: str) -> dict[str, str]:
    """With the token that the route wants."""
    is_write = path.endswith(("/stop", "/drain", "/step-down", "/request"))
    token = TOKENS.write if is_write else TOKENS.container if path.endswith("/heartbeat") else TOKENS.read
    return {"host": "127.0.0.1", "authorization": f"Bearer {token}"}
