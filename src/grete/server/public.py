"""HTTP that other machines reach: over TLS, at an address of its own beside the server on the loopback.

Containers and commands of this machine go on to use the loopback, where no certificate can be wrong. Over TLS the
same server answers, with the same rights.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from grete.channel.certificate import CertificateFiles, own_certificate
from grete.channel.relay import Relay
from grete.config.key_tables import job
from grete.config.settings.coordinator import CoordinatorSettings
from grete.coordinator.public_address import PublicAddress, certificate_of
from grete.errors import ConfigError

_log = logging.getLogger("grete.coordinator")


def certificate_files(
    settings: CoordinatorSettings, names: tuple[str, ...], folder: Path
) -> CertificateFiles:
    """Those of the configuration, else the job's own in its folder, which is made where it is not there.

    Raises:
        MissingExtra: one has to be made, and `cryptography` is not installed.
        OSError: the folder cannot be written.
    """
    if settings.http_certificate is None:
        return own_certificate(folder, names)
    return certificate_of(settings, folder)


class ServerTls:
    """The TLS of a certificate whose files may be replaced: a new one is used from the next connection on.

    While the files do not fit together, or cannot be read, the certificate before stays.
    """

    def __init__(self, files: CertificateFiles) -> None:
        """Raises ConfigError: they cannot be used."""
        self._files = files
        self._seen = self._stamps()
        try:
            self._context = _load(files)
        except OSError as error:
            raise ConfigError(
                f"{job.HTTP_CERTIFICATE.name}={files.certificate}: it cannot be used with the key in {files.key} "
                f"({error}). Both are PEM files, the key without a password"
            ) from error

    def __call__(self) -> ssl.SSLContext:
        """That of the next connection."""
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._context = _load(self._files)
                _log.info("the certificate in %s is used from now on", self._files.certificate)
            except OSError as error:
                _log.warning(
                    "the certificate in %s is not used, but the one before: %s",
                    self._files.certificate,
                    error,
                )
        return self._context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for path in (self._files.certificate, self._files.key):
            try:
                known = path.stat()
                found.append((known.st_ino, known.st_mtime_ns, known.st_size))
            except OSError:
                found.append(None)
        return found


def _load(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(files.certificate, files.key, password=lambda: "")  # else it asks at the terminal
    return context


class PublicServer:
    """Serves at a public address what a server on the loopback answers. The port is taken when this is made."""

    def __init__(
        self, address: PublicAddress, bound: socket.socket, context: Callable[[], ssl.SSLContext]
    ) -> None:
        self.address = address._replace(port=bound.getsockname()[1])
        self._bound = bound
        self._context = context
        self._relay: Relay | None = None

    def start(self, server: tuple[str, int]) -> None:
        """Begin to pass connections on to it."""
        self._bound.listen()
        self._relay = Relay(self._bound, server, self._context)
        self._relay.start()
        _log.info("other machines reach the job at https://%s", self.address.location)

    def close(self) -> None:
        """End, with all connections."""
        if self._relay is not None:
            self._relay.close()
        self._bound.close()
