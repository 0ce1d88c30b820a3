"""An account of Azure Storage: clients of its containers and tables, and what their errors mean.

No client repeats a request or waits for longer than it is told: by default one may take minutes for a renewal, longer
than the lease. The caller decides whether asking again is safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from grete.azure.library import (
    AzureError,
    AzureNamedKeyCredential,
    AzureSasCredential,
    BlobServiceClient,
    ClientAuthenticationError,
    ContainerClient,
    TableClient,
    TableServiceClient,
    TokenCredential,
)
from grete.config.settings.azure import AzureAccount
from grete.errors import GreteError, LogError, LoginRefused, LogUnreachable, MissingExtra

T = TypeVar("T")
_REFUSED = frozenset((401, 403))
_MAY_PASS = frozenset((408, 429))
_NO_ANSWER = 503
_BEING_DELETED = frozenset(("ContainerBeingDeleted", "TableBeingDeleted"))
"""For half a minute after it was deleted."""
_CONNECT_KEY = "azure.storage.connect"
logging.getLogger("azure").setLevel(logging.WARNING)  # every request with its headers, at the level INFO


class AzureStorage:
    """Clients of one account that share their connections. `timeout_s` is for connecting, and for each answer."""

    def __init__(self, account: AzureAccount, *, timeout_s: float) -> None:
        self._opened = ExitStack()
        credential = _credential(account, self._opened)
        self.requests = 0
        """How many there were: Azure asks a price for each."""
        options: dict[str, Any] = {
            "retry_total": 0,
            "connection_timeout": timeout_s,
            "read_timeout": timeout_s,
            "raw_request_hook": self._count,
        }
        self._name = account.shown
        self._blobs = BlobServiceClient(account.blob_endpoint, credential=credential, **options)
        self._tables = TableServiceClient(account.table_endpoint, credential=credential, **options)
        self._opened.callback(self._blobs.close)
        self._opened.callback(self._tables.close)

    def container(self, name: str) -> ContainerClient:
        """A container of blobs, which may not exist."""
        return self._blobs.get_container_client(name)

    def table(self, name: str) -> TableClient:
        """A table, which may not exist."""
        return self._tables.get_table_client(name)

    def _count(self, request: object) -> None:
        self.requests += 1

    @contextmanager
    def answering(self, what: str, changed: Set[str], refusal: Callable[[str], GreteError]) -> Iterator[None]:
        """Translate what the service answers: one of the words in `changed` is a `refusal`, which is an answer."""
        try:
            yield
        except AzureError as error:
            if code_of(error) in changed:
                raise refusal(f"{what}: {code_of(error)}; another process changed it") from error
            raise self.translated(error, what) from error

    def translated(self, error: AzureError, what: str) -> GreteError:
        """The error of ours that says what was attempted, and the way out."""
        status = getattr(error, "status_code", None) or _NO_ANSWER
        said = f"{what} in Azure Storage ({self._name}) failed: {code_of(error) or _first_line(error)}"
        if isinstance(error, ClientAuthenticationError) or status in _REFUSED:
            return LoginRefused(
                f"{said}; check the key, signature or identity of {_CONNECT_KEY}, its rights, and this machine's "
                f"clock: Azure refuses requests that are 15 minutes off"
            )
        if status >= 500 or status in _MAY_PASS or code_of(error) in _BEING_DELETED:
            return LogUnreachable(
                f"{said}; check the address in {_CONNECT_KEY}, and that the account answers"
            )
        return LogError(said)

    def close(self) -> None:
        """Close the connections."""
        self._opened.close()


def in_created(send: Callable[[], T], create: Callable[[], object], *, missing: str, present: str) -> T:
    """Send a request to a place that is created if the service's word is that it is `missing`, and send it again.

    `present` is its word where another process was faster.
    """
    try:
        return send()
    except AzureError as error:
        if code_of(error) != missing:
            raise
    try:
        create()
    except AzureError as error:
        if code_of(error) != present:
            raise
    return send()


def code_of(error: AzureError) -> str:
    """The service's own word for the error, such as `LeaseAlreadyPresent`; empty when it did not answer."""
    code = getattr(error, "error_code", None)
    if code is not None:
        return str(getattr(code, "value", code))
    response = getattr(error, "response", None)  # some calls of the tables' client leave the word there
    return "" if response is None else str(response.headers.get("x-ms-error-code", ""))


def _first_line(error: AzureError) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _credential(
    account: AzureAccount, opened: ExitStack
) -> AzureNamedKeyCredential | AzureSasCredential | TokenCredential:
    if account.key:
        return AzureNamedKeyCredential(account.name, account.key)
    if account.signature:
        return AzureSasCredential(account.signature)
    try:
        from azure.identity import (
            DefaultAzureCredential,  # 0.3 s, for jobs that have neither key nor signature
        )
    except ImportError as error:
        raise MissingExtra("azure-identity", "azure") from error
    return opened.enter_context(DefaultAzureCredential())
