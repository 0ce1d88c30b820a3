"""Credentials that a program gives, as `exec` of a kubeconfig names it: those of EKS, GKE and AKS.

The protocol is that of kubectl (client.authentication.k8s.io): the program is told of the cluster by a variable, and
prints an ExecCredential. Its answer is kept until it expires or is refused. The program may take longer than a caller
has, so it runs in a thread, one at a time, and begins again before what it gave has expired.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from base64 import b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from grete.clock import Clock, SystemClock
from grete.config.redact import redact_forms
from grete.coordination.kubernetes.credential import Credential, Pem, token_in
from grete.errors import ConfigError, CoordinationError, CoordinationUnreachable

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
INFO = "KUBERNETES_EXEC_INFO"
LONGEST_S = 60.0
"""After which a program is killed."""
_EARLY_S = 60.0
"""Before the end of a credential, in which the next one is asked for while this one is used."""
_LONGEST_TEXT = 500
_OF_EXEC = "client.authentication.k8s.io/exec"
"""The extension of a cluster that is meant for the program."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: without a shell, with the variables of this process and its own. `info` says how it is called."""

    words: tuple[str, ...]
    variables: Mapping[str, str] = field(repr=False)
    version: str
    info: str = field(repr=False)
    hint: str
    """How to install it, in the words of the kubeconfig."""
    origin: str


class _Variable(Struct, frozen=True):
    name: str
    value: str | None = None


class _Exec(Struct, frozen=True, rename="camel"):
    """`exec` of a kubeconfig's user."""

    api_version: str = ""
    command: str = ""
    args: list[str] | None = None
    env: list[_Variable] | None = None
    interactive_mode: str | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False


class _Extension(Struct, frozen=True):
    name: str
    extension: Any = None


class _Status(Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Answer(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status


@dataclass(frozen=True, slots=True)
class _Granted:
    """`until_s` is on the monotonic clock."""

    credential: Credential
    until_s: float


class CredentialPlugin:
    """One program, whose last answer is kept. Safe to use from several threads."""

    def __init__(self, program: Program, clock: Clock | None = None) -> None:
        self._program = program
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._run: Future[_Granted] | None = None
        self._kept: _Granted | None = None

    def credential(self, timeout_s: float) -> Credential:
        """The credential that is valid now.

        Raises:
            CoordinationUnreachable: the program has not answered in time, or failed; the next call may find more.
            CoordinationError: what it printed is no credential.
        """
        with self._lock:
            kept, now_s = self._kept, self._clock.monotonic_s()
            if kept is not None and now_s < kept.until_s - _EARLY_S:
                return kept.credential
            run = self._begin()
        if kept is not None and now_s < kept.until_s:
            return kept.credential
        try:
            return run.result(timeout_s).credential
        except TimeoutError as error:
            raise self._unreachable(f"has not answered within {timeout_s:g} s") from error

    def refuse(self, credential: Credential) -> None:
        """Forget what the server has refused: the next call asks the program."""
        with self._lock:
            if self._kept is not None and self._kept.credential is credential:
                self._kept = None

    def _begin(self) -> Future[_Granted]:
        """The run that is under way, else a new one."""
        if self._run is None or self._run.done():
            self._run = Future()
            thread = threading.Thread(
                target=self._fill, args=(self._run,), name="credential-plugin", daemon=True
            )  # a program that hangs holds up no end of this process
            thread.start()
        return self._run

    def _fill(self, run: Future[_Granted]) -> None:
        try:
            run.set_result(self._ask())
        except Exception as error:  # noqa: BLE001 - a thread begins here, and who waits is to hear of it
            run.set_exception(error)

    def _ask(self) -> _Granted:
        granted = self._granted(self._printed())
        with self._lock:
            self._kept = granted
        return granted

    def _printed(self) -> bytes:
        environment = {**os.environ, **self._program.variables, INFO: self._program.info}
        try:
            done = subprocess.run(  # noqa: S603 - the program that the operator's kubeconfig names, no shell
                self._program.words,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._unreachable(f"has not answered within {LONGEST_S:g} s and was killed") from error
        except (FileNotFoundError, PermissionError) as error:
            raise CoordinationError(f"{self._named('cannot be started')}: {error}") from error
        except OSError as error:  # no process or no memory is left, for now
            raise self._unreachable(f"cannot be started: {error}") from error
        if done.returncode != 0:
            said = redact_forms(done.stderr.decode(errors="replace")).strip()[-_LONGEST_TEXT:]
            raise self._unreachable(f"ended with {done.returncode}: {said or 'it printed no error'}")
        return done.stdout

    def _granted(self, printed: bytes) -> _Granted:
        """Nothing of what was printed is in an error."""
        try:
            answer = msgspec.json.decode(printed, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CoordinationError(self._named(f"printed no ExecCredential ({error})")) from error
        if (answer.kind, answer.api_version) != ("ExecCredential", self._program.version):
            found = f"{answer.kind[:50]!r} of {answer.api_version[:50]!r}"
            raise CoordinationError(
                self._named(f"printed {found}, and {self._program.version} was asked for")
            )
        status = answer.status
        certificate, key = status.client_certificate_data, status.client_key_data
        token = token_in(status.token, self._program.origin)
        if bool(certificate) != bool(key) or not (token or certificate):
            raise CoordinationError(
                self._named("printed neither a token nor a client certificate with its key")
            )
        pems = (Pem(certificate), Pem(key)) if certificate else (None, None)
        return _Granted(Credential(token, *pems), self._until_s(status.expiration_timestamp))

    def _until_s(self, expires: datetime | None) -> float:
        """Counted from now: the wall clock may jump, and a server that refuses earlier is listened to."""
        if expires is None:
            return float("inf")
        return self._clock.monotonic_s() + expires.timestamp() - self._clock.wall_ms() / 1000

    def _named(self, what: str) -> str:
        hint = f". {self._program.hint}" if self._program.hint else ""
        return f"{self._program.origin}: the program for credentials, {self._program.words[0]}, {what}{hint}"

    def _unreachable(self, what: str) -> CoordinationUnreachable:
        return CoordinationUnreachable(self._named(what))


def program_of(part: Any, cluster: Mapping[str, Any], ca: Pem | None, folder: Path, origin: str) -> Program:
    """The program that `exec` of a user names; `folder` is that of the file, where a relative path begins.

    Raises:
        ConfigError: it names none that can be run here, or one of another protocol.
        CoordinationError: the cluster's authority cannot be read.
    """
    try:
        named = msgspec.convert(part, _Exec)
        extensions = msgspec.convert(cluster.get("extensions") or [], list[_Extension])
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{origin}: exec, or an extension of the cluster for it, is none: {error}"
        ) from error
    if named.api_version not in VERSIONS:
        raise ConfigError(
            f"{origin}: exec has apiVersion {named.api_version!r}, and {' and '.join(VERSIONS)} are spoken: let the "
            f"cluster's own tool write the kubeconfig again"
        )
    if named.interactive_mode == "Always":
        raise ConfigError(
            f"{origin}: exec has interactiveMode Always, and nobody sits in front of a job: take a program that asks "
            f"nothing, or user.tokenFile"
        )
    hint = (named.install_hint or "").strip()
    words = (_found(named.command, folder, hint, origin), *(named.args or ()))
    variables = {each.name: each.value or "" for each in named.env or ()}
    told = _told(cluster, extensions, ca) if named.provide_cluster_info else None
    return Program(words, variables, named.api_version, _info(named.api_version, told), hint, origin)


def _found(command: str, folder: Path, hint: str, origin: str) -> str:
    """A path begins at the kubeconfig's folder, a name is looked for on PATH."""
    found = shutil.which(str(folder / command) if os.sep in command else command)
    if found is None:
        raise ConfigError(
            f"{origin}: exec names the program {command!r}, which is not there. "
            f"{hint or 'Install it, or add its folder to PATH'}"
        )
    return found


def _info(version: str, cluster: Mapping[str, Any] | None) -> str:
    spec = {"interactive": False, **({} if cluster is None else {"cluster": cluster})}
    # a date of YAML's is a text in JSON
    return json.dumps({"kind": "ExecCredential", "apiVersion": version, "spec": spec}, default=str)


def _told(cluster: Mapping[str, Any], extensions: Sequence[_Extension], ca: Pem | None) -> dict[str, Any]:
    """What the program learns of the cluster."""
    told: dict[str, Any] = {"server": str(cluster.get("server", ""))}
    if ca is not None:
        told["certificate-authority-data"] = b64encode(ca.read().encode()).decode()
    named = {each.name: each.extension for each in extensions}
    return {**told, **({"config": named[_OF_EXEC]} if _OF_EXEC in named else {})}
