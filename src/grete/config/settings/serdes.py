"""Settings of a serde, `serializers.registry.<name>.*`."""

from __future__ import annotations

from grete.config import aliases
from grete.config.key_tables import serdes as keys
from grete.config.secrets import resolve_secrets
from grete.config.settings.section import NamedSection, OptionalSetting, Setting
from grete.errors import ConfigError


class SerdeSettings(NamedSection):
    """`serializers.registry.<name>.*`."""

    schema = OptionalSetting(keys.SERDE_SCHEMA)
    """As it is written: a schema or the path of a file."""
    columns = OptionalSetting(keys.SERDE_COLUMNS)
    """The type of what an own serde reads, in Spark's DDL."""
    subject = OptionalSetting(keys.REGISTRY_SUBJECT)
    ca_file = OptionalSetting(keys.REGISTRY_CA)
    registers = Setting(keys.REGISTRY_REGISTERS)
    _class = OptionalSetting(keys.SERDE_CLASS)
    _url = OptionalSetting(keys.REGISTRY_URL)
    _login = OptionalSetting(keys.REGISTRY_LOGIN)

    @property
    def own_keys(self) -> dict[str, str]:
        """Its keys and their values, as they are written."""
        prefix = keys.SERDE_OTHER.named(self.name, "")
        return {key: value for key, value in self.raw.items() if key.startswith(prefix)}

    @property
    def implementation(self) -> str:
        """Built in, by its name, or `module:Class`."""
        return aliases.canonical(aliases.SERDES, self.name if self._class is None else self._class)

    @property
    def registry_url(self) -> str:
        """The address of the schema registry.

        Raises:
            ConfigError: it is not set, or none.
        """
        key = keys.REGISTRY_URL.named(self.name)
        if not self._url:
            raise ConfigError(f"{key} is not set: {keys.REGISTRY_URL.doc}")
        url = resolve_secrets(self._url).strip().rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{key}: an address begins with http:// or https://")
        if "@" in url:
            raise ConfigError(f"{key}: user and password are set by {keys.REGISTRY_LOGIN.named(self.name)}")
        return url

    @property
    def registry_login(self) -> tuple[str, str] | None:
        """User and password, references resolved. Not to be shown.

        Raises:
            ConfigError: a reference refers to nothing, or it is not of the form `user:password`.
        """
        if self._login is None:
            return None
        user, colon, password = resolve_secrets(self._login).partition(":")
        if not colon:
            raise ConfigError(f"{keys.REGISTRY_LOGIN.named(self.name)} is not of the form user:password")
        return user, password
