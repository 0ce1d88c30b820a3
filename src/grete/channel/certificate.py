"""The certificate of a server's own process: made when it begins to listen, signed by nobody, gone with it."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from grete.channel.tls import fingerprint, only_tls13
from grete.errors import MissingExtra

_FROM, _TO = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Nobody looks at them: it is proved with the key, and machines' clocks differ."""


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
        pem, der = _self_signed()
        context = only_tls13(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.num_tickets = 0  # each connection is proved anew, so none is resumed
        with tempfile.NamedTemporaryFile(prefix="grete-") as file:  # mode 0600, removed at once
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
        return cls(context, fingerprint(der))


def _self_signed() -> tuple[bytes, bytes]:
    """Key and certificate (PEM), and the certificate (DER)."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise MissingExtra("cryptography", "tls") from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "grete")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_TO)
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + certificate.public_bytes(Encoding.PEM), certificate.public_bytes(Encoding.DER)
