"""Where the API server is and who we are: the service account of a pod, or a kubeconfig.

Files that others renew (a pod's token, a certificate authority, client certificates) are named here and read where
they are used, so that an expired one is replaced without a restart; a program for credentials is run there too.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from grete.config.key_tables.kubernetes import CONTEXT, KUBECONFIG
from grete.config.settings.kubernetes import KubernetesSettings
from grete.coordination.kubernetes.credential import Credential, Pem, read_text, token_in
from grete.coordination.kubernetes.credential_plugin import LONGEST_S, CredentialPlugin, program_of
from grete.errors import ConfigError, CoordinationError
from grete.suggestions import or_one_of

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WAY_OUT = (
    "take a token instead: kubectl create token SERVICEACCOUNT > FILE, kept fresh, and user.tokenFile: FILE"
)
_REFUSED = {
    "auth-provider": f"Kubernetes has given these up for exec; write it again by the cluster's tool, or {_WAY_OUT}",
    "username": f"API servers take no passwords any more; {_WAY_OUT}",
    "as": "grete acts for nobody else; name a user that has the rights itself",
    "insecure-skip-tls-verify": "a token would be sent to any server; set certificate-authority",
    "proxy-url": "grete goes through no proxy; name a server that can be reached",
    "tls-server-name": "grete compares the certificate with the server's own address; name that",
}
"""What a kubeconfig may ask for and grete does not do, with the way out."""


@dataclass(frozen=True, slots=True)
class Access:
    """One API server, and one user of it. Without `ca` the system's own authorities are trusted."""

    server: str
    origin: str
    """Where this was found, for errors."""
    namespace: str | None = None
    ca: Pem | None = None
    user: Credential = field(default_factory=Credential)
    token_file: Path | None = None
    plugin: CredentialPlugin | None = None

    def credential(self, timeout_s: float = LONGEST_S) -> Credential:
        """What a request that is sent now shows: tokens of pods are replaced every hour.

        Raises:
            CoordinationUnreachable: the program for credentials does not give one in time.
            CoordinationError: the token's file cannot be read, or what the program gives is none.
        """
        if self.plugin is not None:
            return self.plugin.credential(timeout_s)
        if self.token_file is not None:
            return replace(self.user, token=token_in(read_text(self.token_file), str(self.token_file)))
        return self.user

    def refuse(self, credential: Credential) -> bool:
        """The server has refused this one; returns whether there may be another."""
        if self.plugin is not None:
            self.plugin.refuse(credential)
        return self.plugin is not None

    def tls(self, credential: Credential) -> ssl.SSLContext:
        """What connections that are opened from now on trust and show.

        Raises:
            CoordinationError: a file cannot be read, or does not hold what it should.
        """
        try:
            ca = None if self.ca is None else self.ca.read()
            if ca is not None and not ca.strip():  # OpenSSL would trust each authority of the machine
                raise ValueError("the certificate authority is empty")
            context = ssl.create_default_context(cadata=ca)
            if credential.certificate is not None and credential.key is not None:
                with _files(credential.certificate, credential.key) as (certificate, key):
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


def find_access(settings: KubernetesSettings, environment: Mapping[str, str] | None = None) -> Access:
    """The kubeconfig that the configuration names, else the pod's service account, else the user's kubeconfig.

    Raises:
        ConfigError: there is none, or it asks for what grete does not do.
        CoordinationError: a file cannot be read.
    """
    variables = os.environ if environment is None else environment
    pod = _pod(settings, variables)
    if pod is not None:
        return pod
    paths = _kubeconfigs(settings, variables)
    found = [path for path in paths if path.exists()]
    if not found:
        raise ConfigError(
            f"there is no API server to elect leaders on: this is no pod with a service account, and there is no "
            f"{' or '.join(map(str, paths))}; set {KUBECONFIG.name}"
        )
    return of_kubeconfig(found, settings.context)


def find_namespace(settings: KubernetesSettings, environment: Mapping[str, str] | None = None) -> str | None:
    """The namespace of what `find_access` finds, None where nothing names one. No credential is looked at.

    Raises:
        ConfigError: a kubeconfig is none, or has no such context.
        CoordinationError: a file cannot be read.
    """
    variables = os.environ if environment is None else environment
    pod = _pod(settings, variables)
    if pod is not None:
        return pod.namespace
    found = [path for path in _kubeconfigs(settings, variables) if path.exists()]
    return _Context.of(found, settings.context).namespace if found else None


def _pod(settings: KubernetesSettings, variables: Mapping[str, str]) -> Access | None:
    return in_pod(variables) if settings.kubeconfig is None and settings.context is None else None


def _kubeconfigs(settings: KubernetesSettings, variables: Mapping[str, str]) -> list[Path]:
    named = settings.kubeconfig or variables.get("KUBECONFIG", "")
    return [Path(name) for name in named.split(os.pathsep) if name] or [Path.home() / ".kube" / "config"]


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


@dataclass(frozen=True, slots=True)
class _Context:
    """A context of kubeconfig files; as with kubectl the first file wins."""

    name: str
    origin: str
    """The files."""
    files: Sequence[tuple[Path, dict[str, Any]]]
    part: Mapping[str, Any]

    @classmethod
    def of(cls, paths: Sequence[Path], name: str | None) -> _Context:
        """The context of this name, else the current one."""
        origin = os.pathsep.join(map(str, paths))
        files = [(path, _document(path)) for path in paths]
        current = next(
            (str(each["current-context"]) for _, each in files if each.get("current-context")), None
        )
        named = name or current
        if named is None:
            raise ConfigError(f"{origin} has no current-context; set {CONTEXT.name}")
        return cls(named, origin, files, _named(files, "context", named, origin)[0])

    @property
    def namespace(self) -> str | None:
        """None where it says nothing."""
        return self.part.get("namespace") or None

    def refers_to(self, kind: str) -> tuple[dict[str, Any], Path]:
        """Its cluster or user, and the file it is in."""
        found, path = _named(self.files, kind, str(self.part.get(kind, "")), self.origin)
        for key in sorted(_REFUSED.keys() & found.keys()):
            if found[key]:
                raise ConfigError(
                    f"{self.origin}: the {kind} of context {self.name!r} has {key!r}: {_REFUSED[key]}"
                )
        return found, path


def of_kubeconfig(paths: Sequence[Path], context_name: str | None = None) -> Access:
    """A context of kubeconfig files, the current one unless it is named.

    Raises:
        ConfigError: no such context, cluster or user, or it asks for what grete does not do.
        CoordinationError: a file cannot be read.
    """
    context = _Context.of(paths, context_name)
    cluster, of_cluster = context.refers_to("cluster")
    user, of_user = context.refers_to("user")
    server = str(cluster.get("server", ""))
    if not server.startswith("https://"):
        raise ConfigError(
            f"{context.origin}: the server of context {context.name!r} is {server!r}; name one by https://"
        )
    origin = f"context {context.name!r} of {context.origin}"
    ca = _pem(cluster, "certificate-authority", of_cluster)
    token, token_file = token_in(user.get("token"), origin), user.get("tokenFile")
    certificate, key = _pem(user, "client-certificate", of_user), _pem(user, "client-key", of_user)
    if (certificate is None) is not (key is None):
        raise ConfigError(
            f"{origin}: the user has a client-certificate or a client-key without the other one"
        )
    return Access(
        server.rstrip("/"),
        origin,
        namespace=context.namespace,
        ca=ca,
        user=Credential(token, certificate, key),
        token_file=None if token_file is None else of_user.parent / str(token_file),
        # as with kubectl a token wins
        plugin=None if token or token_file else _plugin(user, cluster, ca, of_user.parent, origin),
    )


def _plugin(
    user: Mapping[str, Any], cluster: Mapping[str, Any], ca: Pem | None, folder: Path, origin: str
) -> CredentialPlugin | None:
    named = user.get("exec")
    if not named:
        return None
    return CredentialPlugin(program_of(named, cluster, ca, folder, origin))


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
    known = []
    for path, document in files:
        for entry in document.get(f"{kind}s") or ():
            if isinstance(entry, dict) and isinstance(entry.get(kind), dict):
                if entry.get("name") == name:
                    return entry[kind], path
                known.append(str(entry.get("name")))
    raise ConfigError(f"{origin} has no {kind} {name!r}{or_one_of(name, known)}")


def _pem(part: Mapping[str, Any], key: str, file: Path) -> Pem | None:
    data, path = part.get(f"{key}-data"), part.get(key)
    if data:
        try:
            return Pem(text=base64.b64decode(str(data), validate=True).decode())
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {key}-data is not base64: {error}") from error
    return Pem(path=file.parent / str(path)) if path else None
