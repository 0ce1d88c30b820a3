"""Blobs of a container as files in folders: each written whole, listed with when it was written, read, removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grete.azure.library import AzureError, BlobProperties
from grete.azure.storage import AzureStorage, code_of, in_created

_MISSING = frozenset(("BlobNotFound", "ContainerNotFound"))


class BlobFolder:
    """Blobs whose names begin with a prefix, by the rest of their names. Safe to use from several threads."""

    def __init__(self, storage: AzureStorage, container: str, path: str) -> None:
        self._storage = storage
        self._container_name = container
        self._container = storage.container(container)
        self._path = path
        self._prefix = f"{path}/" if path else ""

    def below(self, *names: str) -> BlobFolder:
        """The folder of that name, and so on; it need not be there."""
        path = "/".join(filter(None, (self._path, *names)))
        return BlobFolder(self._storage, self._container_name, path)

    def files(self) -> dict[str, float]:
        """Those in the folder itself, and in seconds when each was written; none where there is no container.

        Raises:
            LoginRefused, LogUnreachable, LogError: the account does not answer, or refuses.
        """
        found: dict[str, float] = {}
        with self._answered("listing blobs"):
            for blob in self._container.walk_blobs(name_starts_with=self._prefix, delimiter="/"):
                if isinstance(blob, BlobProperties):  # and no folder within
                    found[blob.name.removeprefix(self._prefix)] = blob.last_modified.timestamp()
        return found

    def read(self, name: str) -> bytes:
        """The content.

        Raises:
            FileNotFoundError: it is not there.
            LoginRefused, LogUnreachable, LogError: see `files`.
        """
        with self._answered(f"reading the blob {name}"):
            content: bytes = self._container.download_blob(self._prefix + name).readall()
            return content
        raise FileNotFoundError(name)

    def write(self, name: str, content: bytes) -> None:
        """Write or replace it; the container is made where it is not there.

        Raises:
            LoginRefused, LogUnreachable, LogError: see `files`.
        """
        with self._answered(f"writing the blob {name}"):
            in_created(
                lambda: self._container.upload_blob(self._prefix + name, content, overwrite=True),
                self._container.create_container,
                missing="ContainerNotFound",
                present="ContainerAlreadyExists",
            )

    def remove(self, name: str) -> None:
        """Remove it; nothing where it is not there.

        Raises:
            LoginRefused, LogUnreachable, LogError: see `files`.
        """
        with self._answered(f"removing the blob {name}"):
            self._container.delete_blob(self._prefix + name)

    def remove_all(self) -> None:
        """Remove all blobs with the prefix, those of folders within as well.

        Raises:
            LoginRefused, LogUnreachable, LogError: see `files`.
        """
        with self._answered("removing blobs"):
            for blob in self._container.list_blobs(name_starts_with=self._prefix):
                with self._answered(f"removing the blob {blob.name}"):
                    self._container.delete_blob(blob.name)

    @contextmanager
    def _answered(self, what: str) -> Iterator[None]:
        """Translate errors; that something is not there is left aside, and the block with it."""
        try:
            yield
        except AzureError as error:
            if code_of(error) not in _MISSING:
                raise self._storage.translated(error, what) from error
