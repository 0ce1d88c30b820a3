"""How a coordinator's server is asked in these tests."""

from __future__ import annotations

from grete.errors import ConfigError
from grete.server.rights import Tokens
from grete.wire.coordinator_api import StoreAnswer, StoreRow

TOKENS = Tokens("r3ad", "wr1te", "c0ntainer")


def headers(path: str) -> dict[str, str]:
    """With the token that the route wants."""
    is_write = path.endswith(("/stop", "/drain", "/step-down", "/request"))
    token = TOKENS.write if is_write else TOKENS.container if path.endswith("/heartbeat") else TOKENS.read
    return {"host": "127.0.0.1", "authorization": f"Bearer {token}"}


class Stores:
    """A job with one store, `counts`, that has one key."""

    def read(self, store: str, *, key: str | None, prefix: str, task: str | None, limit: int) -> StoreAnswer:
        if store != "counts":
            raise ConfigError(f"the job has no store {store!r}")
        row = StoreRow("Partition 0", "ann", 3, {"local.in.0": "7"})
        return StoreAnswer(store, [row] if key in (None, "ann") else [])


def path_of(route: str) -> str:
    """A path that the route has, with things that there are."""
    return route.replace("{id}", "0").replace("{store}", "counts")


def route_of(path: str) -> str:
    """The route of a path, with things that there are or are not."""
    named = path.partition("?")[0].replace("/9", "/{id}").replace("/0", "/{id}")
    return named.replace("/none", "/{store}").replace("/counts", "/{store}")
