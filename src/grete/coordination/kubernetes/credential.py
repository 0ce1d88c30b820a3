"""What a request to an API server and its connection show: a token, or a certificate with its key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from grete.errors import CoordinationError

_LARGEST_FILE = 1024 * 1024
_TOKEN = re.compile("[!-~]+")


def token_in(text: str | None, origin: str) -> str | None:
    """The token that a file, a kubeconfig or a program gives, without white space around it; None of an empty one.

    Raises:
        CoordinationError: no header may hold it. Nothing of it is in the error.
    """
    token = (text or "").strip()
    if token and not _TOKEN.fullmatch(token):
        raise CoordinationError(
            f"{origin}: its token is none: it has white space or characters that are not ASCII"
        )
    return token or None


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

    def __post_init__(self) -> None:
        assert self.token is None or _TOKEN.fullmatch(self.token), "it comes from `token_in`"

    def headers(self) -> dict[str, str]:
        """Headers of a request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
