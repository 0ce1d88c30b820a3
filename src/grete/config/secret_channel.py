"""How executors on other machines get what references stand for: from the container, over an encrypted connection.

An executor has neither the container's environment nor its files. The container listens (`container.secret_server`)
and its workers ask when they meet a reference. Both ends prove that they have the key of the Spark application
(`channel.tls`). The key travels in the environment of the workers, which Spark's own protocol brings them; the
secrets travel here alone.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from grete.channel.tls import Ends, connect, exactly
from grete.errors import JobError

VARIABLE = "GRETE_EXECUTOR_SECRETS"
"""Environment of Spark's Python workers: the text of a SecretsAddress."""
LENGTH = struct.Struct(">I")
_LARGEST = 16 << 20
_ATTEMPTS = 3
_PAUSE_S = 0.5
_FRESH_S = 60.0
"""So a rotated file is seen by the workers within a minute."""


@dataclass(frozen=True, slots=True)
class SecretsAddress:
    """Where the container listens, as its executors reach it, and the key of the Spark application."""

    host: str
    port: int
    key: bytes = field(repr=False)

    def __str__(self) -> str:
        return f"{self.key.hex()}@{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> SecretsAddress:
        """Read `str(address)`.

        Raises:
            ValueError: it is something else.
        """
        key, _, place = text.partition("@")
        host, _, port = place.rpartition(":")
        return cls(host, int(port), bytes.fromhex(key))

    @property
    def ends(self) -> Ends:
        """What the two ends prove to be."""
        return Ends(self.key, client="worker", server="container")

    def fetch(self) -> dict[str, str]:
        """What each reference of the job stands for now, by the reference as it is written.

        Raises:
            OSError, ValueError: the container is not there, or another process is.
        """
        with connect((self.host, self.port), self.ends) as connection:
            (length,) = LENGTH.unpack(exactly(connection, LENGTH.size))
            if length > _LARGEST:
                raise ValueError(f"{length} bytes of secrets are too many")
            values: dict[str, str] = orjson.loads(exactly(connection, length))
            return values


class FetchedSecrets:
    """What a worker has fetched, for a minute. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._from: str | None = None
        self._values: Mapping[str, str] = {}
        self._until_s = 0.0

    def at(self, address: str) -> Mapping[str, str]:
        """What the container of this address says; none of its values is kept when another is asked.

        Raises:
            JobError: it was not reached, and nothing is known of it from before.
        """
        with self._lock:
            if address != self._from:
                self._from, self._values, self._until_s = address, {}, 0.0
            if time.monotonic() >= self._until_s:
                self._fetch(address)
            return self._values

    def _fetch(self, address: str) -> None:
        where = address.rpartition("@")[2]
        for attempt in range(_ATTEMPTS):
            try:
                self._values = SecretsAddress.parse(address).fetch()
            except (OSError, ValueError) as error:
                if self._values:
                    break  # of a minute ago
                if attempt == _ATTEMPTS - 1:
                    raise JobError(
                        f"what references in the configuration stand for is to be had from the container at {where}, "
                        f"which did not give it: {error}. Look whether executors reach that address "
                        f"(spark.driver.host)"
                    ) from error
                time.sleep(_PAUSE_S)
            else:
                break
        self._until_s = time.monotonic() + _FRESH_S
