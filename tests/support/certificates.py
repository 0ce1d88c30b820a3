"""Certificates for tests: a self-signed authority and a server's certificate, made by the JDK's keytool.

The JDK is there wherever a broker runs; openssl and Python packages that make certificates may not be.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from grete.errors import GreteError

_PASSWORD = "loopback"
_KEY = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2")


class CertificatesFailed(GreteError):
    """keytool is missing or refused. The message ends with its words."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority and one certificate that it signed.

    `ca_pem` is what clients trust. `keystore` (PKCS12, opened by `password`) is the server's key with its chain.
    """

    ca_pem: Path
    keystore: Path
    password: str = _PASSWORD


def make_authority(directory: Path, *, names: str = "ip:127.0.0.1") -> Authority:
    """Make both in `directory`, or take what an earlier call left there. About two seconds.

    `names` are those that the server's certificate is valid for, in keytool's words: `ip:127.0.0.1,dns:localhost`.

    Raises:
        CertificatesFailed: no keytool, or it refused.
    """
    made = Authority(directory / "ca.pem", directory / "server.p12")
    if made.ca_pem.exists():
        return made
    directory.mkdir(parents=True, exist_ok=True)
    may_sign = ("-ext", "bc:c=ca:true", "-ext", "ku:c=keyCertSign,cRLSign")
    _keytool(made, "-genkeypair", "-alias", "ca", "-dname", "CN=grete test authority", *_KEY, *may_sign)
    for_servers = ("-ext", f"san={names}", "-ext", "eku=serverAuth", "-signer", "ca")
    _keytool(made, "-genkeypair", "-alias", "server", "-dname", "CN=grete test server", *_KEY, *for_servers)
    unfinished = directory / "ca.pem.new"
    _keytool(made, "-exportcert", "-rfc", "-alias", "ca", "-file", str(unfinished))
    _keytool(made, "-delete", "-alias", "ca")  # a server picks any key of its store: leave it one
    unfinished.rename(made.ca_pem)
    return made


def _keytool(made: Authority, *words: str) -> None:
    tool = shutil.which("keytool")
    if tool is None:
        raise CertificatesFailed("no keytool on the PATH: install a JDK 17 or newer")
    command = [
        tool,
        *words,
        "-keystore",
        str(made.keystore),
        "-storetype",
        "PKCS12",
        "-storepass",
        made.password,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CertificatesFailed(f"keytool {words[0]} failed: {done.stdout}{done.stderr}")
