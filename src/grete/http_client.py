"""How containers and tools read from the job coordinator: retry with back-off, one clear error at the end (S2-79)."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from grete.channel.address import ChannelAddress
from grete.channel.transport import ProvedConnections
from grete.errors import CoordinatorUnavailable, Fenced, WireError
from grete.http_answers import HTTPError, HttpResponse, connections, parse_url, whole_answer
from grete.wire import coordinator_api as api
from grete.wire.container_protocol import Directive, Heartbeat, convert, document

_log = logging.getLogger(__name__)
T = TypeVar("T")
_GIVE_UP_AFTER_S = 60.0
_KEPT_IDLE_S = 4.0
"""So long a connection waits for its next request: the server ends those that are idle for 5 s."""
_LONGEST_TOKEN = 200
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{1,%d}" % _LONGEST_TOKEN)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Samza's ExponentialSleepStrategy (S2-81): `initial_ms`, times `multiplier`, at most `maximum_ms`."""

    multiplier: float = 2.0
    initial_ms: int = 100
    maximum_ms: int = 10_000

    def __post_init__(self) -> None:
        if self.multiplier <= 1:
            raise ValueError(f"the back-off multiplier must be greater than 1, got {self.multiplier}")

    def delays_ms(self) -> Iterator[int]:
        """The waits, without end."""
        delay = float(self.initial_ms)
        while True:
            yield int(min(delay, self.maximum_ms))
            delay = min(delay * self.multiplier, float(self.maximum_ms))


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        OSError: the file cannot be read.
        WireError: the content is no token; it is sent nowhere.
    """
    with path.open("rb") as file:
        token = file.read(_LONGEST_TOKEN + 1).strip()
    if not _TOKEN.fullmatch(token):
        raise WireError(f"{path} does not hold a token")
    return token.decode("ascii")


class JobCoordinatorClient:
    """Talks to one coordinator. The token comes from a file, never from the environment or a command line.

    With a `channel` the coordinator may be on another machine, and both ends prove that they have its token.
    """

    def __init__(
        self,
        url: str,
        token_file: Path | None,
        *,
        channel: ChannelAddress | None = None,
        timeout_s: float = 60.0,
        backoff: Backoff | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make ready to ask; nothing is sent yet.

        Raises:
            OSError: the token's file cannot be read.
            WireError: it holds no token, or the address is none.
        """
        headers = {"Content-Type": "application/json"}
        if channel is not None:
            headers["Authorization"] = f"Bearer {channel.token}"
        elif token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(token_file)}"
        self._url = url.rstrip("/")
        self._headers = headers
        self._timeout_s = timeout_s
        self._backoff = backoff or Backoff()
        self._sleep = sleep
        self._asked_s = 0.0
        try:
            named = parse_url(url)
            if not (named.scheme and named.host):
                raise ValueError("it names no host")
            self._connections = connections() if channel is None else ProvedConnections(channel)
        except ValueError as error:
            raise WireError(f"{url[:200]!r} is no address of a coordinator: {error}") from error

    def get(self, path: str, *, patience_s: float = _GIVE_UP_AFTER_S) -> Any:
        """The JSON document at `path`.

        Raises:
            CoordinatorUnavailable: it kept answering with errors for so long, or did not answer at all.
        """
        waited_ms = 0
        for delay_ms in self._backoff.delays_ms():
            response = self._request("GET", path)
            if response.status == 200:
                return self._document(path, response, dict)
            _log.warning("GET %s: %s %s", path, response.status, _beginning(response))
            if waited_ms >= patience_s * 1000:
                break
            self._sleep(delay_ms / 1000)
            waited_ms += delay_ms
        raise CoordinatorUnavailable(
            f"Unable to read JobModel from Jobcoordinator HTTP server at {self._url}{path}"
        )

    def _request(self, method: str, path: str, body: Any = None) -> HttpResponse:
        idle_s, self._asked_s = time.monotonic() - self._asked_s, time.monotonic()
        if idle_s > _KEPT_IDLE_S:
            self._connections.clear()
        url = self._url + quote(path)
        try:
            return whole_answer(
                self._connections, method, url, self._timeout_s, document=body, headers=self._headers
            )
        except HTTPError as error:
            raise CoordinatorUnavailable(f"{method} {self._url}{path}: {error!r}") from error

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        """Report that the container lives, and how far it is; returns the coordinator's directive.

        Raises:
            Fenced: the coordinator knows a newer incarnation.
            CoordinatorUnavailable: no answer, an error, or no directive.
        """
        path = f"/api/v1/containers/{container_id}/heartbeat"
        response = self._request("POST", path, document(heartbeat))
        if response.status == 409:
            seen = self._document(path, response, api.FencedResponse).epoch
            raise Fenced(f"container {container_id}", epoch=heartbeat.epoch, seen=seen)
        if response.status != 200:
            raise CoordinatorUnavailable(f"POST {path}: {response.status} {_beginning(response)}")
        return self._document(path, response, Directive)

    def _document(self, path: str, response: HttpResponse, kind: type[T]) -> T:
        """The document that was answered.

        Raises:
            CoordinatorUnavailable: it is none: another process listens where a coordinator did.
        """
        try:
            return convert(json.loads(response.content), kind)
        except (ValueError, RecursionError, WireError) as error:
            raise CoordinatorUnavailable(
                f"{self._url}{path} answers {_beginning(response)[:100]!r}: that is no coordinator"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._connections.clear()


def _beginning(response: HttpResponse) -> str:
    return response.text[:500]
