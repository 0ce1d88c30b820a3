"""Settings of the coordinator."""

from __future__ import annotations

import logging
from functools import cached_property

from grete.config.key_tables import coordinator as keys
from grete.config.key_tables.job import DEFAULT_SYSTEM
from grete.config.settings.section import Section
from grete.config.settings.systems import EMBEDDED_SYSTEM, system_names
from grete.errors import ConfigError

_log = logging.getLogger(__name__)


class CoordinatorSettings(Section):
    """`job.coordinator.*`, `job.http.*`, `cluster-manager.*`: leadership, HTTP server, retries and monitors."""

    @cached_property
    def system(self) -> str:
        """The system of the coordinator stream: named, else the default system, else the only one (S2-52).

        Without any configured system it is the embedded `local`.

        Raises:
            ConfigError: several systems and none named.
        """
        named = self.raw.get(keys.SYSTEM.name) or self.raw.get(DEFAULT_SYSTEM.name)
        if named:
            return named
        systems = system_names(self.raw)
        if len(systems) > 1:
            raise ConfigError(
                f"Missing job.coordinator.system configuration. Cannot proceed with job execution. Set it to one of "
                f"{', '.join(systems)}"
            )
        chosen = systems[0] if systems else EMBEDDED_SYSTEM
        _log.debug("job.coordinator.system is not set; it is %s, the only system there is", chosen)
        return chosen
