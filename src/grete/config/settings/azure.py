"""Settings of Azure Storage: `azure.storage.connect`, Samza's key, and what is grete's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from grete.config.key_tables import azure as keys
from grete.config.key_tables.coordinator import LEASE_TTL
from grete.config.secrets import has_reference, resolve_secrets
from grete.config.settings.section import Section, Setting
from grete.errors import ConfigError

SHORTEST_LEASE_S, LONGEST_LEASE_S = 15, 60
"""Azure's limits of a lease on a blob that ends by itself."""
EMULATOR = {
    "AccountName": "devstoreaccount1",
    "AccountKey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "BlobEndpoint": "http://127.0.0.1:10000/devstoreaccount1",
    "TableEndpoint": "http://127.0.0.1:10002/devstoreaccount1",
}
"""`UseDevelopmentStorage=true`: the account that every emulator has, with its public key."""

ACCOUNT_WAY_OUT = (
    "check azure.storage.connect, and that its key, signature or identity may read and write in the account"
)


@dataclass(frozen=True, slots=True)
class AzureAccount:
    """An account and how to get in: by `key`, by shared access `signature`, or, without either, by identity."""

    name: str
    blob_endpoint: str
    table_endpoint: str
    key: str = field(default="", repr=False)
    signature: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """For people."""
        return self.name or self.blob_endpoint


class AzureSettings(Section):
    """`azure.*`, and the keys of checkpoints and elections there."""

    container = Setting(keys.CONTAINER)
    """The container of blobs that holds leaderships and cells."""
    checkpoint_table = Setting(keys.CHECKPOINT_TABLE)
    """Empty: as Samza names it."""
    cell_table = Setting(keys.CELL_TABLE)

    @cached_property
    def account(self) -> AzureAccount:
        """The account. References to secrets are resolved here.

        Raises:
            ConfigError: the key is missing, or is no connection string.
        """
        problem = self.connect_problem
        if problem:
            raise ConfigError(problem)
        return account_of(resolve_secrets(self.raw[keys.CONNECT.name]))

    @property
    def connect_problem(self) -> str:
        """The fault of the connection string, with Samza's words for a missing one; empty when there is none."""
        written = self.raw.get(keys.CONNECT.name, "").strip()
        if not written:
            return (
                f"Missing {keys.CONNECT.name} config! Set it to the connection string of the storage account, from "
                f"`az storage account show-connection-string`; best as ${{env:GRETE_AZURE}} or ${{file:/path}}"
            )
        if has_reference(written):
            return ""  # read where it is used
        try:
            account_of(written)
        except ConfigError as error:
            return str(error)
        return ""


def lease_problem(ttl_s: float) -> str:
    """The fault of a time to live that leases of blobs cannot have; empty when there is none."""
    if SHORTEST_LEASE_S <= ttl_s <= LONGEST_LEASE_S:
        return ""
    return (
        f"{LEASE_TTL.name}={ttl_s * 1000:g}: leases of blobs in Azure Storage last from {SHORTEST_LEASE_S} to "
        f"{LONGEST_LEASE_S} s; set it to a number from {SHORTEST_LEASE_S}000 to {LONGEST_LEASE_S}000"
    )


def account_of(connect: str) -> AzureAccount:
    """The account of a connection string, `name=value` with semicolons between.

    Raises:
        ConfigError: it names no account. The message holds nothing of it but names.
    """
    parts = _parts(connect)
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        parts = {**EMULATOR, **parts}
    name, suffix = parts.get("AccountName", ""), parts.get("EndpointSuffix", "core.windows.net")
    protocol = parts.get("DefaultEndpointsProtocol", "https")
    places = {
        kind: parts.get(f"{kind.capitalize()}Endpoint", name and f"{protocol}://{name}.{kind}.{suffix}")
        for kind in ("blob", "table")
    }
    if not all(places.values()) or ("AccountKey" in parts and not name):
        raise ConfigError(
            f"{keys.CONNECT.name}: this is no connection string of a storage account: it has "
            f"{', '.join(sorted(parts)) or 'no name=value'}; it needs AccountName, or BlobEndpoint and "
            f"TableEndpoint; and AccountKey or SharedAccessSignature unless the identity of the process is to be used"
        )
    signature = parts.get("SharedAccessSignature", "").removeprefix("?")
    return AzureAccount(name, places["blob"], places["table"], parts.get("AccountKey", ""), signature)


def _parts(connect: str) -> Mapping[str, str]:
    found = (part.partition("=") for part in connect.strip().split(";"))
    return {name.strip(): value.strip() for name, equals, value in found if equals}
