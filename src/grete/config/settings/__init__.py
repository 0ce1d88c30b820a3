"""A configuration as values: read through the key table, one answer to each question.

`Settings.of(raw)` has a section for each subject. A section's values have the type of their key, its default and, for
choices, an enum; they are read when they are first asked for, so a wrong value is an error only where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from grete.config.settings.coordinator import CoordinatorSettings
from grete.config.settings.job import JobSettings
from grete.config.settings.stores import StoreSettings
from grete.config.settings.streams import StreamSettings
from grete.config.settings.systems import SystemSettings
from grete.config.settings.tasks import TaskSettings
from grete.model.ids import SystemStream


@dataclass(frozen=True)
class Settings:
    """The settings of a job. `raw` is the configuration as it is written, for the wire and fingerprints."""

    raw: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, raw: Mapping[str, str]) -> Settings:
        """The settings of a configuration in current words (`in_current_words`)."""
        return cls(raw)

    @cached_property
    def job(self) -> JobSettings:
        """The job as a whole."""
        return JobSettings(self.raw)

    @cached_property
    def task(self) -> TaskSettings:
        """Its tasks."""
        return TaskSettings(self.raw)

    @cached_property
    def coordinator(self) -> CoordinatorSettings:
        """Its coordinator."""
        return CoordinatorSettings(self.raw)

    def system(self, name: str) -> SystemSettings:
        """A system by its name."""
        return SystemSettings(self.raw, name)

    def stream(self, stream: SystemStream) -> StreamSettings:
        """A stream, whichever names its keys have."""
        return StreamSettings(self.raw, stream)

    def store(self, name: str) -> StoreSettings:
        """A store by its name."""
        return StoreSettings(self.raw, name)
