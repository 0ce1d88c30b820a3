"""The configuration as an application sees it: references to secrets are resolved where it asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grete.application.resolved_config import ResolvedConfig
from grete.config.keys import find_key
from grete.config.redact import redact
from grete.config.secrets import has_reference, resolve_secrets
from grete.errors import ConfigError

_NOT_THE_APPLICATIONS = ("systems.", "streams.", "sensitive.streams.", "spark.")
"""Only grete and Spark log in to brokers: an application that copies its configuration holds no credentials."""


class ApplicationConfig(ResolvedConfig):
    """A configuration whose `${env:NAME}` and `${file:/path}` are read at each access, in this process.

    Keys of grete's own and of systems, streams and Spark stay as they are written. As a text, secrets are masked.
    """

    __slots__ = ()

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config, _resolved)

    def __reduce__(self) -> tuple[Any, ...]:
        return ApplicationConfig, (self._config,)

    def __repr__(self) -> str:
        return f"ApplicationConfig({redact(self._config)!r})"


def _resolved(key: str, value: str) -> str:
    if not has_reference(value) or not _is_the_applications(key):
        return value
    try:
        return resolve_secrets(value)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _is_the_applications(key: str) -> bool:
    known = find_key(key)
    return (known is None or known.is_open) and not key.startswith(_NOT_THE_APPLICATIONS)
