"""Which NameNode and which DataNode is asked. What the real ones do is in `tests/fault`."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.raw_http import RawServer, Request, document, raw_server, reply

from grete.tasks.stores.web_hdfs import HdfsFolder, WebHdfs

NOWHERE = "127.0.0.1:1"
LOST = "127.0.0.9:1"
STANDBY = {
    "RemoteException": {
        "exception": "StandbyException",
        "javaClassName": "org.apache.hadoop.ipc.StandbyException",
        "message": "Operation category READ is not supported in state standby",
    }
}


def folder(*servers: RawServer | str) -> HdfsFolder:
    """`of`."""
    hosts = (one if isinstance(one, str) else host(one) for one in servers)
    return HdfsFolder(*WebHdfs.of(f"webhdfs://ann@{','.join(hosts)}/of"))


def host(server: RawServer) -> str:
    return server.url.removeprefix("http://")


def said(request: Request) -> dict[str, str]:
    """The request's parameters."""
    return {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}


def redirect(to: str) -> list[bytes]:
    return reply(307, b"", f"Location: http://{to}/webhdfs/v1/of/a?op=OPEN")


@pytest.fixture
def names() -> Iterator[RawServer]:
    """A NameNode."""
    with raw_server() as server:
        yield server


@pytest.fixture
def other() -> Iterator[RawServer]:
    """Another server."""
    with raw_server() as server:
        yield server


def test_the_active_name_node_is_found_and_asked_first_from_then_on(
    names: RawServer, other: RawServer
) -> None:
    file = {"pathSuffix": "a", "type": "FILE", "modificationTime": 5000}
    listing = {"FileStatuses": {"FileStatus": [file, {**file, "type": "DIRECTORY"}]}}
    other.answer = lambda _: document(STANDBY, 403)
    names.answer = lambda _: document(listing)
    snapshots = folder(NOWHERE, other, names)
    assert snapshots.files() == {"a": 5.0}
    names.asked.clear()
    other.asked.clear()
    assert snapshots.below("more").files() == {"a": 5.0}
    assert other.asked == []
    assert [said(request) for request in names.asked] == [{"op": "LISTSTATUS", "user.name": "ann"}]


def test_without_an_active_one_all_is_said(names: RawServer) -> None:
    names.answer = lambda _: document(STANDBY, 403)
    with pytest.raises(OSError, match=f"no NameNode answers: {host(names)} waits"):
        folder(NOWHERE, names).files()


def test_a_data_node_that_is_away_is_left_out_by_its_address_and_not_asked_again_for_a_while(
    names: RawServer, other: RawServer
) -> None:
    """The NameNode sends to a lost machine for ten minutes."""
    other.answer = lambda _: reply(200, b"content")
    names.answer = lambda request: redirect(
        host(other) if said(request).get("excludedatanodes") == "127.0.0.9" else LOST
    )
    snapshots = folder(names)
    assert snapshots.read("a") == b"content"
    assert snapshots.read("a") == b"content"
    left_out = [said(request).get("excludedatanodes") for request in names.asked]
    assert left_out == [None, "127.0.0.9", "127.0.0.9"]


def test_one_that_was_away_is_asked_where_there_is_no_other(names: RawServer, other: RawServer) -> None:
    """It may be back: what has failed once does not stay without snapshots for that."""
    refusal = {"RemoteException": {"exception": "IOException", "message": "Failed to find datanode"}}
    where = [LOST]
    other.answer = lambda _: reply(200, b"content")
    names.answer = lambda request: (
        document(refusal, 403) if "excludedatanodes" in said(request) else redirect(where[0])
    )
    snapshots = folder(names)
    with pytest.raises(OSError, match="no DataNode answers"):
        snapshots.read("a")
    where[0] = host(other)
    assert snapshots.read("a") == b"content"


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (404, FileNotFoundError, "File /of/a not found"),
        (401, PermissionError, "asks for Kerberos"),
        (403, OSError, "HDFS answers 403: Permission denied: user=ann"),
    ],
)
def test_a_refusal_says_why(status: int, error: type[OSError], words: str, names: RawServer) -> None:
    message = words.removeprefix("HDFS answers 403: ")
    refusal = {"RemoteException": {"exception": "AnException", "message": message}}
    names.answer = lambda _: document(refusal, status)
    with pytest.raises(error, match=words):
        folder(names).read("a")
