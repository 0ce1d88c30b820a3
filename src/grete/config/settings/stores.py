"""Settings of a store."""

from __future__ import annotations

from functools import cached_property

from grete.config import stores
from grete.config.settings.job import JobSettings
from grete.config.settings.section import NamedSection


class StoreSettings(NamedSection):
    """`stores.<name>.*`."""

    @cached_property
    def changelog_stream(self) -> str:
        """The stream behind the store: `stores.<name>.changelog`, or `<job>-<id>-<store>-changelog`."""
        return stores.changelog_stream(self.name, JobSettings(self.raw).id, self.raw)
