"""Blobs of one container: read, written on the ETag that was read, leased.

Refusals that are answers are values or `BlobChanged`; everything else is an error of the tree
(`AzureStorage.translated`). The container is created by the first write that finds none.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from grete.azure.library import AzureError, BlobClient, BlobLeaseClient, MatchConditions
from grete.azure.storage import AzureStorage, code_of, in_created
from grete.errors import CoordinationError

_MISSING = frozenset(("BlobNotFound", "ContainerNotFound"))
_LEASED_BY_OTHER = frozenset(("LeaseAlreadyPresent", "LeaseIsBreakingAndCannotBeAcquired"))
_CHANGED = frozenset(
    (
        "ConditionNotMet",
        "BlobAlreadyExists",
        "LeaseIdMissing",
        "LeaseIdMismatchWithBlobOperation",
        "LeaseNotPresentWithBlobOperation",
        "LeaseLost",
        *_MISSING,
    )
)
_LEASE_OVER = frozenset(
    (
        "LeaseIdMismatchWithLeaseOperation",
        "LeaseNotPresentWithLeaseOperation",
        "LeaseIsBrokenAndCannotBeRenewed",
        "LeaseIsBreakingAndCannotBeRenewed",
        *_MISSING,
    )
)


class BlobChanged(CoordinationError):
    """The blob is not as it was read, is leased to another, or is gone. Nothing was written."""


class Acquired(Enum):
    """The outcome of asking for a lease."""

    YES = "yes"
    HELD = "held"
    NO_BLOB = "no blob"


@dataclass(frozen=True, slots=True)
class ReadBlob:
    """A blob as it was read. `lease` is its state: available, leased, expired, breaking or broken."""

    data: bytes
    etag: str
    lease: str


class Blobs:
    """Blobs by name."""

    def __init__(self, storage: AzureStorage, container: str) -> None:
        self._storage = storage
        self._container_name = container
        self._container = storage.container(container)

    def read(self, name: str) -> ReadBlob | None:
        """The blob, None when there is none."""
        with self._translated(f"reading the blob {name}"):
            try:
                stream = self._blob(name).download_blob()
                data: bytes = stream.readall()
            except AzureError as error:
                if code_of(error) in _MISSING:
                    return None
                raise
        return ReadBlob(data, str(stream.properties.etag), str(stream.properties.lease.state or ""))

    def write(self, name: str, data: bytes, *, etag: str | None, lease: str | None = None) -> str:
        """Replace the blob that has this ETag, or create it where `etag` is None; returns its new ETag.

        Raises:
            BlobChanged: it has another one, is leased under another id, or is there already.
        """
        wanted: dict[str, Any] = {} if lease is None else {"lease": lease}
        if etag is not None:
            wanted |= {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        with self._translated(f"writing the blob {name}"):
            written = in_created(
                lambda: self._blob(name).upload_blob(data, overwrite=etag is not None, **wanted),
                self._container.create_container,
                missing="ContainerNotFound",
                present="ContainerAlreadyExists",
            )
        return str(written["etag"])

    def delete(self, name: str, *, etag: str, lease: str | None = None) -> None:
        """Delete the blob that has this ETag.

        Raises:
            BlobChanged: it has another one, is leased under another id, or is gone.
        """
        held: dict[str, Any] = {} if lease is None else {"lease": lease}
        with self._translated(f"deleting the blob {name}"):
            self._blob(name).delete_blob(etag=etag, match_condition=MatchConditions.IfNotModified, **held)

    def acquire(self, name: str, lease: str, seconds: int) -> Acquired:
        """Lease the blob under this id for so long; extends a lease of the same id."""
        with self._translated(f"leasing the blob {name}"):
            try:
                self._lease(name, lease).acquire(lease_duration=seconds)
            except AzureError as error:
                if code_of(error) in _MISSING:
                    return Acquired.NO_BLOB
                if code_of(error) in _LEASED_BY_OTHER:
                    return Acquired.HELD
                raise
        return Acquired.YES

    def renew(self, name: str, lease: str) -> bool:
        """Extend the lease of this id; False when it is over for good."""
        return self._on_lease("renewing", name, lease)

    def release(self, name: str, lease: str) -> bool:
        """End the lease of this id; False when it was over."""
        return self._on_lease("releasing", name, lease)

    def _on_lease(self, what: str, name: str, lease: str) -> bool:
        client = self._lease(name, lease)
        with self._translated(f"{what} the lease of the blob {name}"):
            try:
                client.renew() if what == "renewing" else client.release()
            except AzureError as error:
                if code_of(error) in _LEASE_OVER:
                    return False
                raise
        return True

    def break_lease(self, name: str) -> None:
        """End the lease of the blob now, whoever has it."""
        with self._translated(f"breaking the lease of the blob {name}"):
            try:
                BlobLeaseClient(self._blob(name)).break_lease(lease_break_period=0)
            except AzureError as error:
                if code_of(error) not in _LEASE_OVER:
                    raise

    def _blob(self, name: str) -> BlobClient:
        return self._container.get_blob_client(name)

    def _lease(self, name: str, lease: str) -> BlobLeaseClient:
        return BlobLeaseClient(self._blob(name), lease)

    def _translated(self, what: str) -> AbstractContextManager[None]:
        return self._storage.answering(f"{what} in container {self._container_name}", _CHANGED, BlobChanged)
