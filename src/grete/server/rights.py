"""Who may do what with a coordinator's server: four rights, a token for each, and links that are used once.

Scrapers see metrics and nothing else, dashboards read, operators write, containers say how they are.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from grete.clock import Clock
from grete.errors import GreteError

_log = logging.getLogger("grete.coordinator")
LINK_S = 60
"""Seconds in which a link has to be used."""
_LOOK_S = 10.0


class Right(StrEnum):
    """The right that a token gives."""

    METRICS = "metrics"
    READ = "read"
    WRITE = "write"
    CONTAINER = "container"


_MISSING = {
    Right.METRICS: "a bearer token is needed: that of the file http-metrics-token, or http-token",
    Right.READ: "a bearer token is needed; its file is named by `grete status`",
    Right.WRITE: "the write token is needed, in the file http-write-token",
    Right.CONTAINER: "the token of the job's containers is needed",
}


class RenewedToken:
    """A token whose source others renew: looked at every ten seconds, when somebody shows one. Used by one thread."""

    def __init__(self, read: Callable[[], str | None], clock: Clock) -> None:
        """Raises what `read` raises, now; later the token before stays, and the log says why."""
        self._read = read
        self._clock = clock
        self._token = read()
        self._looked_s = clock.monotonic_s()

    @property
    def now(self) -> str | None:
        """The token that is shown by now."""
        if self._clock.monotonic_s() >= self._looked_s + _LOOK_S:
            self._looked_s = self._clock.monotonic_s()
            try:
                self._token = self._read()
            except GreteError as error:
                _log.warning("scrapers go on with the token before: %s", error)
        return self._token


@dataclass(frozen=True, slots=True)
class Tokens:
    """A token for each right. Without a `read` token reading is free; without another nothing has its right."""

    read: str | None
    write: str | None = None
    container: str | None = None
    metrics: str | RenewedToken | None = None

    def right(self, given: bytes) -> Right | None:
        """The right that a token gives; all are compared, so that the time says nothing."""
        metrics = self.metrics.now if isinstance(self.metrics, RenewedToken) else self.metrics
        known = (
            *((Right.METRICS, metrics), (Right.READ, self.read)),
            *((Right.WRITE, self.write), (Right.CONTAINER, self.container)),
        )
        rights = [right for right, token in known if token is not None and _is_same(given, token)]
        return rights[-1] if rights else (Right.READ if self.read is None else None)

    def refusal(self, needs: Right, given: Right | None) -> str | None:
        """Why a token that gives this right does not do where that one is needed; None where it does.

        Every token has the metrics, and every one but that of metrics reads.
        """
        reads = self.read is None or given not in (None, Right.METRICS)
        may = {Right.METRICS: given is not None, Right.READ: reads}.get(needs, given is needs)
        return None if may else _MISSING[needs]


def _is_same(given: bytes, token: str) -> bool:
    return hmac.compare_digest(given, token.encode())


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """Where the token for each right is kept, in the job's folder."""

    read: Path
    write: Path
    container: Path
    metrics: Path

    @classmethod
    def of(cls, folder: Path) -> TokenFiles:
        """Those of the job whose folder it is."""
        names = ("http-token", "http-write-token", "http-container-token", "http-metrics-token")
        return cls(*(folder / name for name in names))


def one_time_code(right: Right, token: str, clock: Clock) -> str:
    """A code for the link of a page, good for one use within a minute."""
    signed = f"{right}.{clock.wall_ms() + LINK_S * 1000}.{secrets.token_urlsafe(9)}"
    return f"{signed}.{code_signature(token, signed)}"


def code_signature(token: str, text: str) -> str:
    """Proves that who made a code knows the token."""
    return hmac.new(token.encode(), f"grete-ui:{text}".encode(), hashlib.sha256).hexdigest()
