"""A Kerberos realm of a test's own: MIT's KDC on loopback, its database in a folder, keytabs, tickets."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from grete.testing.server_cluster import ServerCluster, ServerNode

REALM = "GRETE.TEST"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "grete"
MODULE = Path(os.environ.get("GRETE_KERBEROS_MODULE", _CACHE / "kerberos-1.3.1"))
"""A folder with the module of clients, which is compiled and so not among the packages of the tests."""


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert found, f"{name} is not installed: run SERVICES=kerberos make services"
    return found


@dataclass(frozen=True, slots=True)
class KdcNode(ServerNode):
    """The KDC and where it listens."""

    port: int


class Kerberos(ServerCluster[KdcNode]):
    """A realm with one KDC. `environment` is what its clients need to find it, and no ticket or keytab."""

    PORTS_PER_NODE: ClassVar[int] = 1

    @property
    def bootstrap(self) -> str:
        """The address of the KDC."""
        return f"127.0.0.1:{self.nodes[0].port}"

    @property
    def configuration(self) -> Path:
        """`krb5.conf`, of clients and of servers."""
        return self._directory / "krb5.conf"

    def add(self, principal: str, *, lifetime_s: int = 600) -> Path:
        """A keytab with the keys of a new principal of the realm, whose tickets last so long."""
        keytab = self._directory / f"{principal.replace('/', '.')}.keytab"
        self._run("kadmin.local", "-q", f'addprinc -randkey -maxlife "{lifetime_s} seconds" {principal}')
        self._run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}")
        return keytab

    def fetch_ticket(self, principal: str, keytab: Path, cache: Path, *, lifetime_s: int) -> None:
        """Put a principal's ticket into a cache, as its user would."""
        lifetime = f"{lifetime_s}s"
        self._run("kinit", "-c", f"FILE:{cache}", "-l", lifetime, "-k", "-t", str(keytab), principal)

    def _run(self, name: str, *arguments: str) -> None:
        kdc = self.nodes[0].directory / "kdc.conf"
        files = {"KRB5_CONFIG": str(self.configuration), "KRB5_KDC_PROFILE": str(kdc)}
        command = [_program(name), *arguments]
        subprocess.run(command, env={**os.environ, **files}, check=True, capture_output=True, text=True)

    def _node(self, number: int, directory: Path, ports: Sequence[int]) -> KdcNode:
        return KdcNode(number, directory, *ports)

    def _prepare(self, node: KdcNode) -> None:
        self.configuration.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n clockskew = 1\n udp_preference_limit = 1\n"
            " dns_lookup_kdc = false\n dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            f"[realms]\n {REALM} = {{\n  kdc = {self.bootstrap}\n }}\n"
        )
        (node.directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = {self.bootstrap}\n kdc_tcp_listen = {self.bootstrap}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {node.directory}/principals\n"
            f"  key_stash_file = {node.directory}/stash\n  max_life = 1d\n }}\n"
            "[logging]\n kdc = STDERR\n"
        )
        self._run("kdb5_util", "create", "-s", "-P", "a master password")

    def _command(self, node: KdcNode) -> list[str]:
        files = (f"KRB5_CONFIG={self.configuration}", f"KRB5_KDC_PROFILE={node.directory / 'kdc.conf'}")
        return ["/usr/bin/env", *files, _program("krb5kdc"), "-n", "-P", str(node.directory / "kdc.pid")]

    def _is_ready(self, node: KdcNode) -> bool:
        try:
            socket.create_connection(("127.0.0.1", node.port), 1).close()
        except OSError:
            return False
        return True
