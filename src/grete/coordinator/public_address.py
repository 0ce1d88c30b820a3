"""Where machines other than its own reach a job's coordinator."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, Self

from grete.channel.certificate import CertificateFiles
from grete.channel.tls import host_in_url
from grete.config.settings.coordinator import CoordinatorSettings

_ELSEWHERE = ("192.0.2.1", 9)
"""An address of nobody's: what is sent there would leave by the way that others come. Nothing is sent."""


class PublicAddress(NamedTuple):
    """Where other machines reach a job's server: at a port, by each of these names and addresses."""

    host: str
    port: int
    names: tuple[str, ...]

    @classmethod
    def of(cls, settings: CoordinatorSettings, machine: str | None = None) -> Self | None:
        """That of the configuration, on this machine or the one of that name; None where only its own reaches it."""
        if not settings.is_public:
            return None
        host = settings.http_host
        return cls(host, settings.http_port, settings.http_names or _names_of_machine(host, machine))

    @property
    def url(self) -> str:
        """Its pages and paths are below it."""
        return f"https://{self.location}"

    @property
    def location(self) -> str:
        """Name and port, as a URL has them."""
        return f"{host_in_url(self.names[0])}:{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """The names, as a request's Host has them, and the machine's address, by which probes come."""
        return frozenset(map(host_in_url, (*self.names, *_own_address())))


def certificate_of(settings: CoordinatorSettings, folder: Path) -> CertificateFiles:
    """The files of the configuration, else those that are made in the job's folder."""
    certificate = settings.http_certificate
    if certificate is None:
        return CertificateFiles.of(folder)
    return CertificateFiles(Path(certificate), Path(settings.http_certificate_key or certificate))


def _names_of_machine(host: str, machine: str | None) -> tuple[str, ...]:
    """The address that is listened at, where it is one and not all of them, and what the machine calls itself."""
    own = socket.gethostname()
    named = machine or own
    with suppress(ValueError):
        if ip_address(host).is_unspecified:
            return (named, *(_own_address() if named == own else ()))
    return tuple(dict.fromkeys((host, named)))


def _own_address() -> tuple[str, ...]:
    """The machine's address towards others; none where it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking, suppress(OSError):
        asking.connect(_ELSEWHERE)
        return (asking.getsockname()[0],)
    return ()
