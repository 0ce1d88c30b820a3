"""Settings of the coordinator."""

from __future__ import annotations

from functools import cached_property

from grete.config.settings.section import Section
from grete.config.streams import coordinator_system


class CoordinatorSettings(Section):
    """`job.coordinator.*`, `job.http.*`, `cluster-manager.*`: leadership, HTTP server, retries and monitors."""

    @cached_property
    def system(self) -> str:
        """The system of the coordinator stream (S2-52).

        Raises:
            ConfigError: several systems and none named.
        """
        return coordinator_system(self.raw)
