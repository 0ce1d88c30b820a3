"""Where the API server is and who we are: the service account of a pod, or a kubeconfig.

Files that others renew (a pod's token, a certificate authority, client certificates) are named here and read where
they are used, so that an expired one is replaced without a restart.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from grete.config.key_tables.kubernetes import CONTEXT, KUBECONFIG
from grete.config.settings.kubernetes import KubernetesSettings
from grete.errors import ConfigError, CoordinationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LARGEST_FILE = 1024 * 1024
_WAY_OUT = (
    "take a token instead: kubectl create token SERVICEACCOUNT > FILE, kept fresh, and user.tokenFile: FILE"
)
_REFUSED = {
    "exec": f"grete starts no programs for credentials; {_WAY_OUT}",
    "auth-provider": f"Kubernetes has given these up; {_WAY_OUT}",
    "username": f"API servers take no passwords any more; {_WAY_OUT}",
    "as": "grete acts for nobody else; name a user that has the rights itself",
    "insecure-skip-tls-verify": "a token would be sent to any server; set certificate-authority",
    "proxy-url": "grete goes through no proxy; name a server that can be reached",
    "tls-server-name": "grete compares the certificate with the server's own address; name that",
}
"""What a kubeconfig may ask for and grete does not do, with the way out."""


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate or key: text in the configuration, or a file."""

    text: str | None = field(default=None, repr=False)
    path: Path | None = None

    def read(self) -> str:
        """The text.

        Raises:
            CoordinationError: the file cannot be read.
        """
        if self.text is not None:
            return self.text
        assert self.path is not None, "neither a text nor a file"
        return read_text(self.path)


@dataclass(frozen=True, slots=True)
class Access:
    """One API server, and one user of it. Without `ca` the system's own authorities are trusted."""

    server: str
    origin: str
    """Where this was found, for errors."""
    namespace: str | None = None
    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None

    def headers(self) -> dict[str, str]:
        """Headers of a request that is sent now: tokens of pods are replaced every hour.

        Raises:
            CoordinationError: the token's file cannot be read.
        """
        token = self.token if self.token_file is None else read_text(self.token_file).strip()
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def tls(self) -> ssl.SSLContext:
        """What connections that are opened from now on trust and show.

        Raises:
            CoordinationError: a file cannot be read, or does not hold what it should.
        """
        try:
            context = ssl.create_default_context(cadata=None if self.ca is None else self.ca.read())
            if self.certificate is not None and self.key is not None:
                with _files(self.certificate, self.key) as (certificate, key):
                    context.load_cert_chain(certificate, key)
        except (ssl.SSLError, ValueError) as error:
            raise CoordinationError(f"{self.origin}: a certificate or key is none: {error}") from error
        return context


@contextmanager
def _files(*pems: Pem) -> Iterator[Sequence[Path]]:
    """Files with these texts, ours only, for as long as they are loaded: OpenSSL takes a key from nowhere else."""
    with tempfile.TemporaryDirectory(prefix="grete-") as folder:
        paths = [Path(folder) / str(number) for number in range(len(pems))]
        for path, pem in zip(paths, pems, strict=True):
            path.touch(mode=0o600)
            path.write_text(pem.read())
        yield paths


def read_text(path: Path) -> str:
    """A small text file.

    Raises:
        CoordinationError: it cannot be read, or is no text.
    """
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CoordinationError(f"cannot read {path}, which says how to reach Kubernetes: {error}") from error


def find_access(settings: KubernetesSettings, environment: Mapping[str, str] | None = None) -> Access:
    """The kubeconfig that the configuration names, else the pod's service account, else the user's kubeconfig.

    Raises:
        ConfigError: there is none, or it asks for what grete does not do.
        CoordinationError: a file cannot be read.
    """
    variables = os.environ if environment is None else environment
    if settings.kubeconfig is None and settings.context is None:
        pod = in_pod(variables)
        if pod is not None:
            return pod
    named = settings.kubeconfig or variables.get("KUBECONFIG", "")
    paths = [Path(name) for name in named.split(os.pathsep) if name] or [Path.home() / ".kube" / "config"]
    found = [path for path in paths if path.exists()]
    if not found:
        raise ConfigError(
            f"there is no API server to elect leaders on: this is no pod with a service account, and there is no "
            f"{' or '.join(map(str, paths))}; set {KUBECONFIG.name}"
        )
    return of_kubeconfig(found, settings.context)


def in_pod(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access | None:
    """The service account that Kubernetes gives a pod, None outside of one."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    token = folder / "token"
    if not host or not token.exists():
        return None
    return Access(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        f"the service account in {folder}",
        namespace=read_text(folder / "namespace").strip(),
        ca=Pem(path=folder / "ca.crt"),
        token_file=token,
    )


def of_kubeconfig(paths: Sequence[Path], context_name: str | None = None) -> Access:
    """A context of kubeconfig files, the current one unless it is named; as with kubectl the first file wins.

    Raises:
        ConfigError: no such context, cluster or user, or it asks for what grete does not do.
        CoordinationError: a file cannot be read.
    """
    origin = os.pathsep.join(map(str, paths))
    files = [(path, _document(path)) for path in paths]
    current = next((str(each["current-context"]) for _, each in files if each.get("current-context")), None)
    name = context_name or current
    if name is None:
        raise ConfigError(f"{origin} has no current-context; set {CONTEXT.name}")
    context, _ = _named(files, "context", name, origin)
    cluster, of_cluster = _named(files, "cluster", str(context.get("cluster", "")), origin)
    user, of_user = _named(files, "user", str(context.get("user", "")), origin)
    for part, what in ((cluster, "cluster"), (user, "user")):
        for key in sorted(_REFUSED.keys() & part.keys()):
            if part[key]:
                raise ConfigError(f"{origin}: the {what} of context {name!r} has {key!r}: {_REFUSED[key]}")
    server = str(cluster.get("server", ""))
    if not server.startswith("https://"):
        raise ConfigError(f"{origin}: the server of context {name!r} is {server!r}; name one by https://")
    token_file = user.get("tokenFile")
    return Access(
        server.rstrip("/"),
        f"context {name!r} of {origin}",
        namespace=context.get("namespace") or None,
        ca=_pem(cluster, "certificate-authority", of_cluster),
        certificate=_pem(user, "client-certificate", of_user),
        key=_pem(user, "client-key", of_user),
        token=user.get("token"),
        token_file=None if token_file is None else of_user.parent / str(token_file),
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no kubeconfig: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is no kubeconfig: it holds no mapping")
    return document


def _named(
    files: Sequence[tuple[Path, dict[str, Any]]], kind: str, name: str, origin: str
) -> tuple[dict[str, Any], Path]:
    """A context, cluster or user by its name, and the file it is in: relative paths begin there."""
    for path, document in files:
        for entry in document.get(f"{kind}s") or ():
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
                return entry[kind], path
    raise ConfigError(f"{origin} has no {kind} {name!r}")


def _pem(part: Mapping[str, Any], key: str, file: Path) -> Pem | None:
    data, path = part.get(f"{key}-data"), part.get(key)
    if data:
        try:
            return Pem(text=base64.b64decode(str(data), validate=True).decode())
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {key}-data is not base64: {error}") from error
    return Pem(path=file.parent / str(path)) if path else None
