"""Answers over HTTP that end: in time, however slowly they come, and with a size."""

from __future__ import annotations

import time
from typing import Any

import httpx

_LARGEST_BYTES = 64 << 20


def whole_answer(
    client: httpx.Client,
    method: str,
    url: str,
    timeout_s: float,
    *,
    largest_bytes: int = _LARGEST_BYTES,
    **given: Any,
) -> httpx.Response:
    """The answer with its body, after twice `timeout_s` at the latest.

    httpx's own timeout is one for each piece: a proxy that passes on a byte now and then would hold the caller for
    hours. `given` is what `httpx.Client.stream` takes besides.

    Raises:
        httpx.RequestError: no answer, cut off, too slow or too large, or it cannot be decoded.
    """
    until_s = time.monotonic() + timeout_s
    timeout = httpx.Timeout(timeout_s, connect=timeout_s / 2)
    with client.stream(method, url, timeout=timeout, **given) as answer:
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > largest_bytes:
                raise httpx.ReadError(
                    f"the answer has more than {largest_bytes} bytes", request=answer.request
                )
            if time.monotonic() > until_s:
                raise httpx.ReadTimeout(f"no whole answer in {timeout_s:g} s", request=answer.request)
        headers = {name: value for name, value in answer.headers.items() if name in _KEPT}
        return httpx.Response(
            answer.status_code,
            headers=headers,
            content=bytes(body),
            request=answer.request,
            history=answer.history,
        )


_KEPT = ("content-type", "location")
"""Not the encodings: what is kept is decoded."""
