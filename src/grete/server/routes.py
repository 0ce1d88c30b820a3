"""A route carries the right that it needs, so that what the router matches is what is guarded."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from grete.server.guard import RouteGuard
from grete.server.rights import Right, Tokens

Endpoint = Callable[[Request], Awaitable[Response]]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class ExactRoute(Route):
    """A path as it is written, but for percent-encoded letters.

    Starlette's own pattern takes a newline at the end, and a `/` that was encoded as one that divides: neither is a
    path of ours.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Starlette, for paths that mean one thing alone."""
        if _CONTROL.search(scope["path"]) or b"%2f" in scope.get("raw_path", b"").lower():
            return Match.NONE, {}
        return super().matches(scope)


class Below(BaseRoute):
    """Every path below one, for an application of its own that sees the whole path."""

    def __init__(self, prefix: str, app: ASGIApp) -> None:
        self._prefix = prefix
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See BaseRoute."""
        path = scope.get("path", "")
        is_below = path == self._prefix or path.startswith(f"{self._prefix}/")
        return (Match.FULL if scope["type"] == "http" and is_below else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See BaseRoute."""
        await self._app(scope, receive, send)


class GuardedRoute(ExactRoute):
    """A path with its one method and the right that a request needs, None for all."""

    def __init__(
        self, method: str, path: str, endpoint: Endpoint, *, needs: Right | None, tokens: Tokens
    ) -> None:
        guard = Middleware(RouteGuard, needs=needs, tokens=tokens)
        super().__init__(path, endpoint, methods=[method], middleware=[guard])
        self.method = method
        self.needs = needs
