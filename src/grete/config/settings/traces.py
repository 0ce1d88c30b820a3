"""Settings of traces: where spans go, and of how many batches there are some."""

from __future__ import annotations

from urllib.parse import urlsplit

from grete.config.key_tables import job as keys
from grete.config.secrets import resolve_secrets
from grete.config.settings.section import OptionalSetting, Section, Setting
from grete.errors import ConfigError

_PATH = "/v1/traces"


class TraceSettings(Section):
    """`job.traces.*`."""

    endpoint = OptionalSetting(keys.TRACES_ENDPOINT)
    """As it is written; None where nothing is traced."""
    percent = Setting(keys.TRACES_PERCENT)

    @property
    def url(self) -> str:
        """Where spans are posted.

        Raises:
            ConfigError: no address of HTTP.
        """
        written = (self.endpoint or "").strip()
        try:
            parts = urlsplit(written)
            known = (
                parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
            )
        except ValueError:
            known = False
        if not known or parts.username is not None or parts.query or parts.fragment:
            raise ConfigError(
                f"{keys.TRACES_ENDPOINT.name}={written!r} is no address of a receiver of spans: write it as "
                f"http://collector:4318, and what it wants to be told of us into {keys.TRACES_HEADERS.name}"
            )
        return written if parts.path.strip("/") else written.rstrip("/") + _PATH

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the receiver wants, resolved.

        Raises:
            ConfigError: a reference cannot be resolved, or one has no name and value.
        """
        found = {}
        for pair in resolve_secrets(self.raw.get(keys.TRACES_HEADERS.name, "")).split(","):
            name, is_there, value = pair.partition("=")
            if not pair.strip():
                continue
            if not is_there or not name.strip().isascii() or not name.strip().replace("-", "").isalnum():
                raise ConfigError(
                    f"{keys.TRACES_HEADERS.name} is no list of headers: write name=value, separated by commas"
                )
            found[name.strip().lower()] = value.strip()
        return found
