"""Certificates that are signed by nobody: of a server's own process, gone with it, and of a job, in its folder."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from grete.channel.tls import fingerprint, only_tls13
from grete.errors import MissingExtra
from grete.private_files import private_directory, replace_file

_FROM, _TO = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Nobody looks at them: it is proved with the key, and machines' clocks differ."""
_YEARS, _MONTH = timedelta(days=3650), timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Identity:
    """The TLS of a server, and the fingerprint of its certificate, which it proves with the key (`channel.tls`)."""

    context: ssl.SSLContext
    certificate: bytes

    @classmethod
    def create(cls) -> Self:
        """Draw a key and make its certificate, which takes a millisecond.

        Raises:
            MissingExtra: `cryptography` is not installed.
            OSError: Python's `ssl` reads keys from files alone, and there is no room for one.
        """
        secret, certificate = _self_signed((), _FROM, _TO)
        context = only_tls13(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.num_tickets = 0  # each connection is proved anew, so none is resumed
        with tempfile.NamedTemporaryFile(prefix="grete-") as file:  # mode 0600, removed at once
            file.write(secret + certificate)
            file.flush()
            context.load_cert_chain(file.name)
        return cls(context, fingerprint(ssl.PEM_cert_to_DER_cert(certificate.decode())))


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A chain of certificates and its key, in PEM. They may be one file."""

    certificate: Path
    key: Path

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Those that are made for a job, in its folder."""
        return cls(folder / "http-certificate.pem", folder / "http-certificate-key.pem")


def ends_at(certificate: Path) -> datetime:
    """When the first certificate of a file ends.

    Raises:
        MissingExtra: `cryptography` is not installed.
        OSError, ValueError: it cannot be read.
    """
    found: datetime = _library()[0].load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    return found


def own_certificate(folder: Path, names: Sequence[str]) -> CertificateFiles:
    """The certificate of a job for these names and addresses, from its folder, where clients may take it to trust it.

    It is made anew where it is for other names, ends within a month, or cannot be read.

    Raises:
        MissingExtra: `cryptography` is not installed.
        OSError: the folder cannot be written.
    """
    files = CertificateFiles.of(folder)
    now = datetime.now(UTC)
    if not _is_good(files, names, now + _MONTH):
        private_directory(folder)
        # machines' clocks differ by less than a day
        secret, certificate = _self_signed(names, now - timedelta(days=1), now + _YEARS)
        replace_file(files.key, secret)
        replace_file(files.certificate, certificate)
    return files


def _is_good(files: CertificateFiles, names: Sequence[str], at: datetime) -> bool:
    x509 = _library()[0]
    try:
        found = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        known = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return [str(one.value) for one in known] == list(names) and found.not_valid_after_utc > at


def _self_signed(names: Sequence[str], begin: datetime, end: datetime) -> tuple[bytes, bytes]:
    """Key and certificate (PEM)."""
    x509, ec, hashes, serialization = _library()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "grete")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    if names:
        found = [_general_name(x509, one) for one in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret, certificate.public_bytes(serialization.Encoding.PEM)


def _general_name(x509: Any, name: str) -> Any:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _library() -> tuple[Any, Any, Any, Any]:
    """What is needed of `cryptography`, which is an extra.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise MissingExtra("cryptography", "tls") from error
    return x509, ec, hashes, serialization
