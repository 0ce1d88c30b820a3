"""A folder of HDFS by its own REST interface, which needs neither Java nor Hadoop's files where a worker runs."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

from grete.http_answers import HTTPError, HttpResponse, connections, whole_answer

_ANSWER_S = 8.0
"""Less than a place is waited for, so that another NameNode or DataNode is asked in time."""
_PORT, _DATA_NODES, _LET_BE_S = 9870, 3, 60.0
_WAITING = "StandbyException"
_BYTES = {"Content-Type": "application/octet-stream"}


class WebHdfs:
    """The NameNodes of a file system, of which one is active. Safe to use from several threads."""

    def __init__(self, hosts: list[str], user: str) -> None:
        """`hosts` may have ports."""
        self._client = connections()
        self._hosts = [host if ":" in host else f"{host}:{_PORT}" for host in hosts]
        self._user = user
        self._away = dict[str, float]()

    @classmethod
    def of(cls, address: str) -> tuple[WebHdfs, str]:
        """The file system and the path of `webhdfs://[USER@]HOST[:PORT][,HOST[:PORT]]/PATH`."""
        rest, _, path = address.partition("://")[2].partition("/")
        user, _, hosts = rest.rpartition("@")
        return cls(
            hosts.split(","), user or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        ), f"/{path}"

    def ask(self, method: str, path: str, operation: str, **parameters: str) -> HttpResponse:
        """What the active NameNode says, unless it refuses.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: refused, or no NameNode answers.
        """
        failed = "none is named"
        for host in list(self._hosts):
            url = f"http://{host}/webhdfs/v1{quote(path)}"
            said = {"op": operation, "user.name": self._user, **parameters}
            try:
                answer = whole_answer(
                    self._client, method, url, _ANSWER_S / len(self._hosts), parameters=said
                )
            except HTTPError as error:
                failed = f"{host}: {error}"
                continue
            if _exception(answer).get("exception") == _WAITING:
                failed = f"{host} waits for the active one to end"
                continue
            self._hosts.sort(key=lambda one: one != host)  # the next question goes here first
            return answer if answer.is_redirect else _accepted(answer)
        raise OSError(f"no NameNode answers: {failed}")

    def at_data_node(
        self, method: str, path: str, operation: str, content: bytes | None, **parameters: str
    ) -> bytes:
        """Read or write a file at a DataNode. One that is away is left out: its host may be the one that was lost.

        Raises:
            FileNotFoundError, OSError: as `ask`, or no DataNode that has it answers.
        """
        failed: HTTPError | None = None
        for _ in range(_DATA_NODES):
            sent = self._sent_to(method, path, operation, parameters)
            if sent.location is None:
                return sent.content  # a gateway, which does it itself
            try:
                answer = whole_answer(
                    self._client, method, sent.location, _ANSWER_S / 2, content=content, headers=_BYTES
                )
                return _accepted(answer).content
            except HTTPError as error:
                failed = error
                self._away[urlsplit(sent.location).hostname or ""] = time.monotonic() + _LET_BE_S
        raise OSError(f"no DataNode answers: {failed}")

    def _sent_to(self, method: str, path: str, operation: str, parameters: Mapping[str, str]) -> HttpResponse:
        """Which DataNode the NameNode names: one that was away if there is no other, since it may be back.

        It goes by the addresses of hosts, and not by their names and ports, as its documentation has it.
        """
        away = [host for host, until_s in list(self._away.items()) if until_s > time.monotonic()]
        if away:
            with suppress(OSError):
                left_out = ",".join(map(socket.gethostbyname, away))
                return self.ask(method, path, operation, **parameters, excludedatanodes=left_out)
        return self.ask(method, path, operation, **parameters)


def _exception(answer: HttpResponse) -> dict[str, Any]:
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        found = answer.json()["RemoteException"]
        return found if isinstance(found, dict) else {}
    return {}


def _accepted(answer: HttpResponse) -> HttpResponse:
    if answer.is_success:
        return answer
    said = _exception(answer)
    if answer.status == 404:
        raise FileNotFoundError(str(said.get("message", answer.url)))
    if answer.status == 401:
        raise PermissionError("HDFS asks for Kerberos, which snapshots do not speak")
    raise OSError(f"HDFS answers {answer.status}: {said.get('message', answer.text)}"[:500])


class HdfsFolder:
    """As `grete.tasks.stores.snapshot_places.ArrowFolder`."""

    def __init__(self, system: WebHdfs, path: str) -> None:
        self._system = system
        self._path = path.rstrip("/")

    def below(self, *names: str) -> HdfsFolder:
        """See SnapshotPlace."""
        return HdfsFolder(self._system, "/".join((self._path, *names)))

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def files(self) -> dict[str, float]:
        """See SnapshotPlace."""
        try:
            answer = self._system.ask("GET", self._path, "LISTSTATUS")
        except FileNotFoundError:
            return {}
        found = answer.json()["FileStatuses"]["FileStatus"]
        return {one["pathSuffix"]: one["modificationTime"] / 1000 for one in found if one["type"] == "FILE"}

    def read(self, name: str) -> bytes:
        """See SnapshotPlace."""
        return self._system.at_data_node("GET", self._at(name), "OPEN", None)

    def write(self, name: str, content: bytes) -> None:
        """See SnapshotPlace. What is half written has another name, since readers would see it."""
        half = f".{name}.{secrets.token_hex(4)}"
        try:
            self._system.at_data_node(
                "PUT", self._at(half), "CREATE", content, permission="600", overwrite="true"
            )
            told = {"destination": self._at(name), "renameoptions": "OVERWRITE"}
            self._system.ask("PUT", self._at(half), "RENAME", **told)
        except OSError:
            with suppress(OSError):
                self.remove(half)
            raise

    def remove(self, name: str) -> None:
        """See SnapshotPlace."""
        self._system.ask("DELETE", self._at(name), "DELETE")

    def remove_all(self) -> None:
        """See SnapshotPlace."""
        self._system.ask("DELETE", self._path, "DELETE", recursive="true")
