"""Answers over HTTP that end: in time, however slowly they come, and with a size."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urljoin

from urllib3 import PoolManager as PoolManager
from urllib3 import Retry, Timeout
from urllib3.exceptions import HTTPError as HTTPError
from urllib3.exceptions import LocationParseError, NewConnectionError, ProtocolError, SSLError, TimeoutError
from urllib3.util import parse_url as parse_url

_LARGEST_BYTES = 64 << 20
_PIECE = 65_536
_SEE_OTHER = 303
"""All other redirections keep the method."""
CONNECTIONS = 100
"""To one server at once that are kept; above them urllib3 warns with each one."""
NO_CONNECTION = (NewConnectionError, SSLError)
"""Errors of `whole_answer` of a server that cannot be reached, or that is not trusted."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer with its body, and what it answers: the last request, where some were redirected."""

    method: str
    url: str
    status: int
    content: bytes
    location: str | None = None

    @property
    def is_success(self) -> bool:
        """Whether the status says so."""
        return 200 <= self.status < 300

    @property
    def is_redirect(self) -> bool:
        """Whether it names another place."""
        return self.location is not None and 300 <= self.status < 400

    @property
    def text(self) -> str:
        """The body for whoever reads an error."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """The body's document.

        Raises:
            ValueError, RecursionError: it is none.
        """
        return json.loads(self.content)


def connections(tls: ssl.SSLContext | None = None) -> PoolManager:
    """Connections that are kept for the next request, by TLS as given, else by what the machine trusts.

    Safe to use from several threads. No proxy and no login is taken from the environment.
    """
    return PoolManager(maxsize=CONNECTIONS, retries=False, ssl_context=tls)


def time_limits(timeout_s: float, read_s: float | None = None) -> Timeout:
    """The limits of one request: half the time to connect, all of it (or `read_s`) for each piece of the answer."""
    return Timeout(connect=timeout_s / 2, read=timeout_s if read_s is None else read_s)


def whole_answer(
    client: PoolManager,
    method: str,
    url: str,
    timeout_s: float,
    *,
    parameters: Mapping[str, str] | None = None,
    document: Any = None,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    redirects: int = 0,
    largest_bytes: int = _LARGEST_BYTES,
) -> HttpResponse:
    """The answer with its body, after twice `timeout_s` where the head comes in one piece. Nothing is sent twice.

    A head that trickles has `timeout_s` for each piece, and each redirection begins anew. For the body urllib3 has a
    limit for each piece too: a proxy that passes on a byte now and then would hold the caller for hours, so all of it
    has to be there in time. `document` is sent as JSON, `content` as it is; so many `redirects` are followed.

    Raises:
        HTTPError: no answer, cut off, too slow or too large, or it cannot be decoded.
    """
    until_s = time.monotonic() + timeout_s
    url = f"{url}?{urlencode(parameters)}" if parameters else url
    sent = content if document is None else json.dumps(document, allow_nan=False).encode()
    kind = {} if document is None else {"Content-Type": "application/json"}
    followed = Retry(total=None, connect=False, read=False, status=0, other=False, redirect=redirects)
    try:
        answer = client.request(
            method,
            url,
            body=sent,
            headers=kind | dict(headers or {}),
            timeout=time_limits(timeout_s),
            preload_content=False,
            redirect=redirects > 0,
            retries=followed if redirects else False,
        )
    except ValueError as error:  # of the standard library: a redirection, or a host's name, that is none
        # nothing of the error, which may hold the value of a header
        raise LocationParseError(f"{url} ({type(error).__name__})") from None
    try:
        body = bytearray()
        while piece := answer.read1(_PIECE):
            body += piece
            if len(body) > largest_bytes:
                raise ProtocolError(f"the answer has more than {largest_bytes} bytes")
            if time.monotonic() > until_s:
                raise TimeoutError(f"no whole answer in {timeout_s:g} s")
    except BaseException:
        answer.close()
        raise
    answer.release_conn()
    for hop in answer.retries.history if answer.retries else ():
        url = urljoin(url, hop.redirect_location or "")
        method = "GET" if hop.status == _SEE_OTHER else method
    return HttpResponse(method, url, answer.status, bytes(body), answer.headers.get("location"))
