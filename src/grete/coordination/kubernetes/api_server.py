"""The calls of a Kubernetes API server that coordination and deployments need, over HTTP.

Nothing here repeats a request: whether it may be is known to the caller alone
(docs/decisions/0021-a-lease-over-plain-http.md). One that was refused for its credential has done nothing, and is
sent with another where a program gives one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from grete.coordination.kubernetes.access import Access
from grete.coordination.kubernetes.credential import Credential, Pem
from grete.errors import CoordinationError, CoordinationUnreachable
from grete.http_answers import (
    NO_CONNECTION,
    HTTPError,
    HttpResponse,
    PoolManager,
    connections,
    time_limits,
    whole_answer,
)

Document = dict[str, Any]
_NOT_FOUND, _CONFLICT = 404, 409
_UNAUTHORIZED = 401
_REFUSED = (_UNAUTHORIZED, 403)
_LATER = 429
_LONGEST_TEXT = 500
_NO_API_SERVER = "That is no API server's answer: look what stands before it"
_LEASES = (
    "bind it to a Role with get, create and update on leases of coordination.k8s.io (docs/kubernetes.md)"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Objects of a collection as they are together at one moment, `version`."""

    documents: Sequence[Document]
    version: str


class ApiServer:
    """One API server as one user. Safe to use from several threads."""

    def __init__(self, access: Access, *, rights: str = _LEASES) -> None:
        """`rights` is the way out when a request is forbidden."""
        self._access = access
        self._rights = rights
        self._lock = threading.Lock()
        self._client: PoolManager | None = None
        self._shown: tuple[Pem | None, Pem | None] = (None, None)

    def read(self, path: str, timeout_s: float) -> Document | None:
        """The object at a path as it is now; None when there is none.

        Raises:
            CoordinationUnreachable: no answer in time.
            CoordinationError: refused.
        """
        answer = self._request("GET", path, timeout_s)
        return None if _is_status(answer, _NOT_FOUND) else self._document(answer, path)

    def create(self, path: str, document: Document, timeout_s: float) -> Document | None:
        """Make an object in a collection; None when there is one of this name.

        Raises:
            CoordinationUnreachable: no answer in time; it may have been made.
            CoordinationError: refused, or there is no such namespace.
        """
        answer = self._request("POST", path, timeout_s, document)
        return None if _is_status(answer, _CONFLICT) else self._document(answer, path)

    def replace(self, path: str, document: Document, timeout_s: float) -> Document | None:
        """Replace the object that was read; None when it was changed, removed or recreated since.

        Raises:
            CoordinationUnreachable: no answer in time; it may have been replaced.
            CoordinationError: refused.
        """
        assert document["metadata"]["resourceVersion"], "without it whatever is there would be replaced"
        answer = self._request("PUT", path, timeout_s, document)
        if _is_status(answer, _CONFLICT, _NOT_FOUND):
            return None
        return self._document(answer, path)

    def remove(
        self, path: str, expected: Mapping[str, str], timeout_s: float, grace_s: int | None = None
    ) -> bool:
        """Remove the object, if it still is what was read: `uid` and `resourceVersion`; False when it is not.

        `grace_s` is how long a pod has for its end, where not its own; with 0 it is forgotten at once, also where
        nobody knows whether it has ended.

        Raises:
            CoordinationUnreachable: no answer in time; it may have been removed.
            CoordinationError: refused.
        """
        grace = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        answer = self._request("DELETE", path, timeout_s, {"preconditions": dict(expected), **grace})
        if _is_status(answer, _CONFLICT, _NOT_FOUND):
            return False
        self._document(answer, path)
        return True

    def select(self, path: str, selector: str, timeout_s: float) -> Selection:
        """The objects of a collection with these labels, as they are now.

        Raises:
            CoordinationUnreachable: no answer in time.
            CoordinationError: refused.
        """
        answer = self._request("GET", path, timeout_s, parameters={"labelSelector": selector})
        document = self._document(answer, path)
        try:
            return Selection(document["items"], document["metadata"]["resourceVersion"])
        except (KeyError, TypeError) as error:
            raise CoordinationUnreachable(
                f"GET {self._access.server}{path}: no list. {_NO_API_SERVER}"
            ) from error

    def watch(self, path: str, selector: str, version: str, watch_s: float, timeout_s: float) -> None:
        """Wait until objects with these labels are not those of `version` any more, `watch_s` at most.

        A notification only: also returns when the connection is lost.

        Raises:
            CoordinationError: refused.
        """
        parameters = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, math.ceil(watch_s))),
        }
        url = f"{self._access.server}{path}?{urlencode(parameters)}"
        credential = self._access.credential(timeout_s)
        with (
            suppress(HTTPError),
            closing(
                self._opened(credential).request(
                    "GET",
                    url,
                    headers=credential.headers(),
                    timeout=time_limits(timeout_s, max(watch_s, 0.001)),
                    preload_content=False,
                    redirect=False,
                )
            ) as answer,
        ):
            if answer.status == _UNAUTHORIZED and self._access.refuse(credential):
                return  # who looks again has another one
            if answer.status in _REFUSED:
                self._document(HttpResponse("GET", url, answer.status, answer.data), path)
            answer.read1(1)

    def _request(
        self,
        method: str,
        path: str,
        timeout_s: float,
        body: Document | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        def answered(credential: Credential) -> HttpResponse:
            client = self._opened(credential)
            try:
                answer = whole_answer(
                    client,
                    method,
                    f"{self._access.server}{path}",
                    timeout_s,
                    document=body,
                    parameters=parameters,
                    headers=credential.headers(),
                )
            except HTTPError as error:
                if isinstance(error, NO_CONNECTION):
                    self._forget(client)
                raise CoordinationUnreachable(
                    f"{method} {self._access.server}{path}: no answer from the API server ({self._access.origin}): "
                    f"{error!r}"
                ) from error
            if answer.status == _UNAUTHORIZED:
                self._forget(client)
            return answer

        credential = self._access.credential(timeout_s)
        answer = answered(credential)
        if answer.status == _UNAUTHORIZED and self._access.refuse(credential):
            answer = answered(self._access.credential(timeout_s))
        return answer

    def _opened(self, credential: Credential) -> PoolManager:
        """The client whose connections show this credential's certificate."""
        shown = (credential.certificate, credential.key)
        with self._lock:
            if self._client is None or self._shown != shown:
                self._client = connections(self._access.tls(credential))
                self._shown = shown
            return self._client

    def _forget(self, client: PoolManager) -> None:
        """Begin again with what the files of certificates hold then. Others may be using this one: it stays open."""
        with self._lock:
            if self._client is client:
                self._client = None

    def _document(self, answer: HttpResponse, path: str) -> Document:
        document = _object(answer)
        if answer.is_success and document is not None:
            return document
        said = answer.text if document is None else str(document.get("message", ""))
        what = f"{answer.method} {self._access.server}{path}: {answer.status} {said[:_LONGEST_TEXT]}"
        if answer.is_redirect:
            raise CoordinationUnreachable(f"{what}, go to {answer.location}. {_NO_API_SERVER}")
        if answer.is_success or (document is None and answer.status in (_NOT_FOUND, _CONFLICT)):
            raise CoordinationUnreachable(f"{what}. {_NO_API_SERVER}")
        if answer.status in _REFUSED:
            raise CoordinationError(f"{what}. {self._access.origin} may not do this: {self._rights}")
        if answer.status == _NOT_FOUND:
            raise CoordinationError(f"{what}. Create the namespace, or name another one")
        if answer.status == _LATER or answer.status >= 500:
            raise CoordinationUnreachable(what)
        raise CoordinationError(what)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.clear()


def _object(answer: HttpResponse) -> Document | None:
    """The JSON object that was answered, None for anything else."""
    try:
        document = answer.json()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _is_status(answer: HttpResponse, *codes: int) -> bool:
    """Whether the API server itself says one of these: a proxy's page with that code says nothing of objects."""
    return answer.status in codes and (_object(answer) or {}).get("kind") == "Status"
