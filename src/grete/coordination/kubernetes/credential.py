"""What a request to an API server and its connection show: a token, or a certificate with its key."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from grete.errors import CoordinationError

_LARGEST_FILE = 1024 * 1024


def read_text(path: Path) -> str:
    """A small text file.

    Raises:
        CoordinationError: it cannot be read, or is no text.
    """
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CoordinationError(f"cannot read {path}, which says how to reach Kubernetes: {error}") from error


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate or key: text in the configuration, or a file."""

    text: str | None = field(default=None, repr=False)
    path: Path | None = None

    def read(self) -> str:
        """The text.

        Raises:
            CoordinationError: the file cannot be read.
        """
        if self.text is not None:
            return self.text
        assert self.path is not None, "neither a text nor a file"
        return read_text(self.path)


@dataclass(frozen=True, slots=True)
class Credential:
    """Whatever of it there is."""

    token: str | None = field(default=None, repr=False)
    certificate: Pem | None = None
    key: Pem | None = None

    def headers(self) -> dict[str, str]:
        """Headers of a request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
