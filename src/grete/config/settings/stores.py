"""Settings of a store, and of the changelog stream behind it (Samza's StorageConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from grete.config.key_tables import streams as keys
from grete.config.key_tables.job import CHANGELOG_SYSTEM, DEFAULT_SYSTEM
from grete.config.settings.section import NamedSection, OptionalSetting, Setting
from grete.config.values import required_value_of
from grete.model.ids import JobId, SystemStream

_SETTINGS_OF_ALL = ("stores.default.", "stores.backup.factories", "stores.restore.factories")
"""Samza's settings for all stores: they look like stores of these names, and are none."""


def store_names(raw: Mapping[str, str]) -> list[str]:
    """Every store that `stores.<name>.*` configures, sorted. A name holds no dot."""
    return sorted(
        {
            key.split(".")[1]
            for key in raw
            if key.startswith("stores.") and key.count(".") >= 2 and not key.startswith(_SETTINGS_OF_ALL)
        }
    )


class StoreSettings(NamedSection):
    """`stores.<name>.*`."""

    changelog = OptionalSetting(keys.STORE_CHANGELOG)
    key_serde = Setting(keys.STORE_KEY_SERDE)
    msg_serde = Setting(keys.STORE_MSG_SERDE)
    side_inputs_processor = OptionalSetting(keys.STORE_SIDE_INPUTS_PROCESSOR)
    _ttl_ms = OptionalSetting(keys.STORE_TTL)

    def changelog_stream(self, job: JobId) -> str:
        """The stream behind the store: the one that is named, or `<job>-<id>-<store>-changelog`.

        Raises:
            WireError: the name has a dot and is not of the form system.stream.
        """
        named = self.changelog
        if not named:
            return f"{job}-{self.name}-changelog"
        return SystemStream.parse(named).stream if "." in named else named

    @property
    def changelog_system(self) -> str | None:
        """The system of the changelog: the one it names, else Samza's defaults; None without any."""
        return self.named_changelog_system or self.raw.get(DEFAULT_SYSTEM.name)

    @property
    def named_changelog_system(self) -> str | None:
        """The system that the changelog or `job.changelog.system` names; None where neither does."""
        named = self.changelog or ""
        return named.partition(".")[0] if "." in named else self.raw.get(CHANGELOG_SYSTEM.name) or None

    def changelog_property(self, name: str, *others: str) -> str | None:
        """A property of the changelog: the store's own, else the first of the keys `others` that is set."""
        names = (f"stores.{self.name}.changelog.{name}", *others)
        return next((self.raw[key] for key in names if key in self.raw), None)

    @property
    def kafka_properties(self) -> dict[str, str]:
        """`stores.<name>.changelog.kafka.*`: settings of the changelog's topic by the broker's names."""
        own = f"stores.{self.name}.changelog.kafka."
        return {key.removeprefix(own): value for key, value in self.raw.items() if key.startswith(own)}

    @property
    def ttl_ms(self) -> int | None:
        """The age at which entries expire; None where they do not, also by 0 or -1, as in RocksDB."""
        return self._ttl_ms if self._ttl_ms is not None and self._ttl_ms > 0 else None

    @property
    def is_expiring(self) -> bool:
        """Whether entries expire."""
        return self.ttl_ms is not None

    @cached_property
    def compaction_lag_ms(self) -> int:
        """The age at which compaction may drop a change of the store."""
        scopes = (self.name, "default")
        own = next((one for one in scopes if keys.STORE_COMPACTION_LAG.named(one) in self.raw), self.name)
        return required_value_of(self.raw, keys.STORE_COMPACTION_LAG, own)
