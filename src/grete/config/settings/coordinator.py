"""Settings of the coordinator: leadership, HTTP server, retries, monitors, and what containers get of them."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address

import orjson

from grete.config import aliases
from grete.config.key import Key
from grete.config.key_tables import coordinator as keys
from grete.config.key_tables import job
from grete.config.key_tables.task import SHUTDOWN
from grete.config.redact import redact_value
from grete.config.secrets import resolve_secrets
from grete.config.settings.job import JobSettings
from grete.config.settings.section import OptionalSetting, Section, Setting
from grete.config.settings.systems import EMBEDDED_SYSTEM, system_names
from grete.config.values import required_value_of, valid_value_of
from grete.errors import ConfigError

_log = logging.getLogger(__name__)
_TO_CONTAINERS = (job.JOB_NAME.name, job.JOB_ID.name, keys.SYSTEM.name, keys.FACTORY.name)
_SHORTEST_TOKEN = 20
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/=-]{{{_SHORTEST_TOKEN},1000}}")
_MAX_BYTES = 120_000
"""Linux takes 128 KiB for one environment variable, name included; beyond it a process does not start (E2BIG)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Samza's cluster-manager.container.retry.*: 0 fails at once, a negative `count` never gives up.

    Failures are counted until a container has run for `window_s`; one more than `count` is too many. No restart
    waits for longer than `longest_pause_s`.
    """

    count: int = 8
    window_s: float = 300.0
    fail_job: bool = True
    longest_pause_s: float = 60.0


class CoordinatorSettings(Section):
    """`job.coordinator.*`, `job.http.*`, `cluster-manager.*`."""

    http_host = Setting(job.HTTP_HOST)
    http_port = Setting(job.HTTP_PORT)
    """0 takes a free one."""
    http_authentication = Setting(job.HTTP_AUTH)
    http_names = OptionalSetting(job.HTTP_NAMES)
    http_certificate = OptionalSetting(job.HTTP_CERTIFICATE)
    http_certificate_key = OptionalSetting(job.HTTP_CERTIFICATE_KEY)

    @property
    def is_public(self) -> bool:
        """Whether other machines reach the HTTP server."""
        return not is_loopback(self.http_host)

    @property
    def http_metrics_token(self) -> str | None:
        """The token that scrapers show, resolved; None where one is drawn.

        Raises:
            ConfigError: its reference cannot be resolved, or others could guess it, or a header cannot have it.
        """
        written = self.raw.get(job.HTTP_METRICS_TOKEN.name)
        if written is None:
            return None
        found = resolve_secrets(written).strip()
        if not _TOKEN.fullmatch(found):
            raise ConfigError(
                f"{job.HTTP_METRICS_TOKEN.name}: a token has {_SHORTEST_TOKEN} characters or more: letters, digits, "
                f"and -._~+/= alone; `openssl rand -base64 32` makes one"
            )
        return found

    @cached_property
    def system(self) -> str:
        """The system of the coordinator stream: named, else the default system, else the only one (S2-52).

        Without any configured system it is the embedded `local`.

        Raises:
            ConfigError: several systems and none named.
        """
        named = self.raw.get(keys.SYSTEM.name) or self.raw.get(job.DEFAULT_SYSTEM.name)
        if named:
            return named
        systems = system_names(self.raw)
        if len(systems) > 1:
            raise ConfigError(
                f"Missing {keys.SYSTEM.name} configuration. Cannot proceed with job execution. Set it to one of "
                f"{', '.join(systems)}"
            )
        chosen = systems[0] if systems else EMBEDDED_SYSTEM
        _log.debug("%s is not set; it is %s, the only system there is", keys.SYSTEM.name, chosen)
        return chosen

    @cached_property
    def election(self) -> str:
        """The service that elects leaders, in grete's words; empty where none is named."""
        return aliases.canonical(aliases.COORDINATION, self.raw.get(keys.FACTORY.name, "").strip())

    @cached_property
    def lease_ttl_s(self) -> float:
        """How long a silent leader is left alone; the default where a foreign writer has left no valid value."""
        ttl_ms = valid_value_of(self.raw, keys.LEASE_TTL) or required_value_of({}, keys.LEASE_TTL)
        return ttl_ms / 1000

    @cached_property
    def retry_policy(self) -> RetryPolicy:
        """When a container that failed is started again, and when it is given up."""
        return RetryPolicy(
            count=required_value_of(self.raw, keys.RETRY_COUNT),
            window_s=self._seconds(keys.RETRY_WINDOW),
            fail_job=required_value_of(self.raw, keys.FAIL_JOB),
            longest_pause_s=self._seconds(keys.LONGEST_PAUSE),
        )

    @cached_property
    def debounce_s(self) -> float:
        """How long processors must have come and gone no more before their tasks are divided anew."""
        return self._seconds(keys.DEBOUNCE)

    @cached_property
    def shutdown_s(self) -> float:
        """How long a container has to reach a batch boundary."""
        return self._seconds(SHUTDOWN)

    @cached_property
    def orphan_s(self) -> float:
        """How long a container goes on without a coordinator; -1 for ever."""
        if not required_value_of(self.raw, job.HEARTBEAT_MONITOR):
            return -1.0
        retries = required_value_of(self.raw, keys.YARN_HEARTBEAT_RETRIES)
        return retries * self._seconds(keys.YARN_HEARTBEAT_SLEEP)

    @cached_property
    def monitor_partitions_s(self) -> float:
        """How often partition counts of the inputs are read; 0 and less is never."""
        return self._seconds(keys.MONITOR_PARTITIONS_MS)

    @cached_property
    def monitor_regex_s(self) -> float:
        """How often streams that match an input regex are looked for; 0 and less is never."""
        return self._seconds(keys.MONITOR_REGEX_MS)

    @cached_property
    def monitor_lag_s(self) -> float:
        """How often the lag is measured; 0 and less is never."""
        return self._seconds(keys.MONITOR_LAG_MS)

    @cached_property
    def container_silent_s(self) -> float:
        """After how long without a heartbeat a container is silent; 0 and less is never."""
        return self._seconds(keys.MONITOR_CONTAINER_SILENT_MS)

    @cached_property
    def query_stuck_s(self) -> float:
        """After how long without a batch a query with lag is stuck; 0 and less is never."""
        return self._seconds(keys.MONITOR_QUERY_STUCK_MS)

    @cached_property
    def for_containers(self) -> dict[str, str]:
        """Job name and id, the coordinator system and that system's own keys, without secrets (S2-57 to S2-59).

        A reference such as `${env:NAME}` stays: the container resolves it. A secret written out is left out, since an
        environment is readable by `ps` and ends in crash dumps.
        """
        prefix = f"systems.{self.system}."
        chosen = {
            key: value
            for key, value in self.raw.items()
            if (key in _TO_CONTAINERS or key.startswith(prefix)) and redact_value(key, value) == value
        }
        job_id = JobSettings(self.raw).written_id.id
        return {**chosen, keys.SYSTEM.name: self.system, job.JOB_ID.name: job_id}

    @cached_property
    def environment(self) -> str:
        """`for_containers` as the JSON of SAMZA_COORDINATOR_SYSTEM_CONFIG.

        Raises:
            ConfigError: it is too large for an environment variable.
        """
        encoded = orjson.dumps(self.for_containers, option=orjson.OPT_SORT_KEYS)
        if len(encoded) > _MAX_BYTES:
            raise ConfigError(
                f"the configuration under systems.{self.system}. has {len(encoded)} bytes, too many for a "
                f"container's environment ({_MAX_BYTES}); move large values into files and name the files"
            )
        return encoded.decode()

    def _seconds(self, key: Key[int]) -> float:
        return required_value_of(self.raw, key) / 1000


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
