"""Settings of a DataFrame pipeline's outputs that are no streams."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from grete.config.key import Key
from grete.config.key_tables import outputs as keys
from grete.config.key_tables.task import OUTPUTS_SUFFIX
from grete.config.secrets import resolve_secrets
from grete.config.settings.section import NamedSection, OptionalSetting, Setting
from grete.errors import ConfigError

DELTA, JDBC = "delta", "jdbc"


def output_names(raw: Mapping[str, str]) -> list[str]:
    """Every output that `outputs.<name>.*` configures, sorted. A name holds no dot."""
    return sorted({key.split(".")[1] for key in raw if key.startswith("outputs.") and key.count(".") >= 2})


class OutputSettings(NamedSection):
    """`outputs.<name>.*`."""

    path = OptionalSetting(keys.OUTPUT_PATH)
    table = OptionalSetting(keys.OUTPUT_TABLE)
    user = OptionalSetting(keys.OUTPUT_USER)
    partition_by = Setting(keys.OUTPUT_PARTITION_BY)
    key_columns = Setting(keys.OUTPUT_KEYS)
    order_by = OptionalSetting(keys.OUTPUT_ORDER_BY)
    deleted_column = OptionalSetting(keys.OUTPUT_DELETED_COLUMN)
    _driver = OptionalSetting(keys.OUTPUT_DRIVER)
    _format = OptionalSetting(keys.OUTPUT_FORMAT)
    _url = OptionalSetting(keys.OUTPUT_URL)
    _password = OptionalSetting(keys.OUTPUT_PASSWORD)

    @cached_property
    def format(self) -> str:
        """The format, in lower case.

        Raises:
            ConfigError: it is not set.
        """
        return self.required(keys.OUTPUT_FORMAT, self._format).lower()

    def required(self, key: Key[str], value: str | None) -> str:
        """The value of a key that this output cannot do without.

        Raises:
            ConfigError: it is not set.
        """
        if not value:
            raise ConfigError(f"{key.named(self.name)} is not set: {key.doc}")
        return value

    @cached_property
    def target_path(self) -> str:
        """The folder where the job writes, see `task.outputs.suffix`.

        Raises:
            ConfigError: it is not set.
        """
        path = self.required(keys.OUTPUT_PATH, self.path)
        return path.rstrip("/") + self._suffix if self._suffix else path

    @cached_property
    def target_table(self) -> str:
        """The table that the job writes, see `task.outputs.suffix`; there it ends in letters, digits and `_`.

        Raises:
            ConfigError: it is not set.
        """
        return self.required(keys.OUTPUT_TABLE, self.table) + re.sub(r"\W", "_", self._suffix)

    @property
    def place(self) -> str:
        """The table, or the folder. Raises ConfigError, as they do."""
        return self.target_table if self.format == JDBC else self.target_path

    @property
    def _suffix(self) -> str:
        return self.raw.get(OUTPUTS_SUFFIX.name, "")

    @property
    def url(self) -> str:
        """The database, references resolved.

        Raises:
            ConfigError: it is not set, or a reference refers to nothing.
        """
        return resolve_secrets(self.required(keys.OUTPUT_URL, self._url))

    @property
    def is_postgresql(self) -> bool:
        """Whether the database is PostgreSQL."""
        return (self._url or "").startswith("jdbc:postgresql:")

    @property
    def password(self) -> str | None:
        """The password, resolved. Not to be shown.

        Raises:
            ConfigError: a reference refers to nothing.
        """
        return None if self._password is None else resolve_secrets(self._password)

    @property
    def driver(self) -> str:
        """The class of Java's driver; empty where Spark finds it by the URL."""
        return self._driver or ("org.postgresql.Driver" if self.is_postgresql else "")

    @property
    def connection(self) -> dict[str, str]:
        """The options by which Spark's `jdbc` reaches the database, references resolved. Not to be shown.

        Raises:
            ConfigError: see `url` and `password`.
        """
        found = {"url": self.url, "user": self.user, "password": self.password, "driver": self.driver}
        return {name: value for name, value in found.items() if value}

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark's writer, references resolved.

        Raises:
            ConfigError: a reference refers to nothing.
        """
        own = f"outputs.{self.name}.option."
        return {
            key.removeprefix(own): resolve_secrets(value)
            for key, value in self.raw.items()
            if key.startswith(own)
        }
