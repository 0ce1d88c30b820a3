"""How containers and tools read from the job coordinator: retry with back-off, one clear error at the end (S2-79)."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from grete.channel.address import Channel
from grete.channel.transport import ProvedTransport
from grete.errors import CoordinatorUnavailable, Fenced, WireError
from grete.wire import coordinator_api as api
from grete.wire.container_protocol import Directive, Heartbeat, convert, document

_log = logging.getLogger(__name__)
T = TypeVar("T")
_GIVE_UP_AFTER_S = 60.0
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
        channel: Channel | None = None,
        timeout_s: float = 60.0,
        backoff: Backoff | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make ready to ask; nothing is sent yet.

        Raises:
            OSError: the token's file cannot be read.
            WireError: it holds no token, or the address is none.
        """
        headers, transport = {}, None
        if channel is not None:
            headers["Authorization"] = f"Bearer {channel.token}"
        elif token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(token_file)}"
        self._backoff = backoff or Backoff()
        self._sleep = sleep
        try:
            if channel is not None:
                transport = ProvedTransport(channel)
            self._client = httpx.Client(
                base_url=url, headers=headers, timeout=timeout_s, trust_env=False, transport=transport
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise WireError(f"{url[:200]!r} is no address of a coordinator: {error}") from error

    def get(self, path: str, *, patience_s: float = _GIVE_UP_AFTER_S) -> Any:
        """The JSON document at `path`.

        Raises:
            CoordinatorUnavailable: it kept answering with errors for so long, or did not answer at all.
        """
        waited_ms = 0
        for delay_ms in self._backoff.delays_ms():
            response = self._request("GET", path)
            if response.status_code == 200:
                return _document(response, dict)
            _log.warning("GET %s: %s %s", path, response.status_code, response.text[:500])
            if waited_ms >= patience_s * 1000:
                break
            self._sleep(delay_ms / 1000)
            waited_ms += delay_ms
        raise CoordinatorUnavailable(
            f"Unable to read JobModel from Jobcoordinator HTTP server at {self._client.base_url}{path}"
        )

    def _request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        try:
            return self._client.request(method, path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CoordinatorUnavailable(f"{method} {self._client.base_url}{path}: {error!r}") from error

    def heartbeat(self, container_id: str, heartbeat: Heartbeat) -> Directive:
        """Report that the container lives, and how far it is; returns the coordinator's directive.

        Raises:
            Fenced: the coordinator knows a newer incarnation.
            CoordinatorUnavailable: no answer, an error, or no directive.
        """
        path = f"/api/v1/containers/{container_id}/heartbeat"
        response = self._request("POST", path, document(heartbeat))
        if response.status_code == 409:
            seen = _document(response, api.Fenced).epoch
            raise Fenced(f"container {container_id}", epoch=heartbeat.epoch, seen=seen)
        if response.status_code != 200:
            raise CoordinatorUnavailable(f"POST {path}: {response.status_code} {response.text[:500]}")
        return _document(response, Directive)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _document(response: httpx.Response, kind: type[T]) -> T:
    """The document that was answered.

    Raises:
        CoordinatorUnavailable: it is none: another process listens where a coordinator did.
    """
    try:
        return convert(response.json(), kind)
    except (ValueError, RecursionError, WireError) as error:
        raise CoordinatorUnavailable(
            f"{response.url} answers {response.text[:100]!r}: that is no coordinator"
        ) from error
