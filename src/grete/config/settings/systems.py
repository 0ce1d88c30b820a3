"""Settings of a system."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from grete.config import streams
from grete.config.settings.section import NamedSection


class SystemSettings(NamedSection):
    """`systems.<name>.*`."""

    @cached_property
    def kind(self) -> str:
        """The kind of system in grete's words; without a factory it is the embedded one."""
        return streams.system_kind(self.raw, self.name)

    def directory(self, home: Path) -> Path:
        """The folder of an embedded system."""
        return streams.system_directory(self.raw, self.name, home)

    def place(self, home: Path) -> str:
        """Where the system's streams are: two names with the same place mean the same streams."""
        return streams.system_place(self.raw, self.name, home)
