"""The configuration as an application sees it: references to secrets are resolved where it asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grete.config.keys import find_key
from grete.config.redact import redact
from grete.config.secrets import has_reference, resolve_secrets
from grete.errors import ConfigError

_NOT_THE_APPLICATIONS = ("systems.", "streams.", "sensitive.streams.", "spark.")
"""Only grete and Spark log in to brokers: an application that copies its configuration holds no credentials."""


class ApplicationConfig(Mapping[str, str]):
    """A configuration whose `${env:NAME}` and `${file:/path}` are read at each access, in this process.

    So a rotated file is seen by the next access, and nothing but the application holds the value. Keys of grete's own
    and of systems, streams and Spark stay as they are written. Shown as a text, secrets are masked.
    """

    __slots__ = ("_config",)

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config

    def __getitem__(self, key: str) -> str:
        """The value.

        Raises:
            KeyError: it is not set.
            ConfigError: it refers to nothing that this process can read; names the key, never a secret.
        """
        value = self._config[key]
        if not has_reference(value) or not _is_the_applications(key):
            return value
        try:
            return resolve_secrets(value)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from error

    def __contains__(self, key: object) -> bool:
        return key in self._config

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)

    def __repr__(self) -> str:
        return f"ApplicationConfig({redact(self._config)!r})"


def _is_the_applications(key: str) -> bool:
    known = find_key(key)
    return (known is None or known.is_open) and not key.startswith(_NOT_THE_APPLICATIONS)
