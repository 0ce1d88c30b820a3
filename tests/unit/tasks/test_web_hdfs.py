"""Which NameNode and which DataNode is asked. What the real ones do is in `tests/fault`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from grete.tasks.stores.web_hdfs import HdfsFolder, WebHdfs

Answer = tuple[int, bytes, str]
STANDBY = (
    b'{"RemoteException":{"exception":"StandbyException","javaClassName":"org.apache.hadoop.ipc.StandbyException",'
    b'"message":"Operation category READ is not supported in state standby"}}'
)


class Servers:
    """One that answers as a function of the request's path and parameters says, at its port."""

    def __init__(self) -> None:
        self._open: list[ThreadingHTTPServer] = []
        self.asked: list[tuple[int, dict[str, str]]] = []

    def start(self, answer: Callable[[dict[str, str]], Answer]) -> int:
        """Returns its port on 127.0.0.1."""
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                said = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                asked.append((self.server.server_address[1], said))
                status, body, location = answer(said)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if location:
                    self.send_header("Location", location)
                self.end_headers()
                self.wfile.write(body)

            do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._open.append(server)
        return server.server_address[1]

    def close(self) -> None:
        """All of them."""
        for server in self._open:
            server.shutdown()
            server.server_close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    opened = Servers()
    yield opened
    opened.close()


def folder(*ports: int) -> HdfsFolder:
    return HdfsFolder(*WebHdfs.of(f"webhdfs://ann@{','.join(f'127.0.0.1:{port}' for port in ports)}/of"))


def listing(said: dict[str, str]) -> Answer:
    file = {"pathSuffix": "a", "type": "FILE", "modificationTime": 5000}
    return (
        200,
        json.dumps({"FileStatuses": {"FileStatus": [file, {**file, "type": "DIRECTORY"}]}}).encode(),
        "",
    )


def test_the_active_name_node_is_found_and_asked_first_from_then_on(servers: Servers) -> None:
    waiting = servers.start(lambda said: (403, STANDBY, ""))
    active = servers.start(listing)
    snapshots = folder(1, waiting, active)
    assert snapshots.files() == {"a": 5.0}
    servers.asked.clear()
    assert snapshots.below("more").files() == {"a": 5.0}
    assert servers.asked == [(active, {"op": "LISTSTATUS", "user.name": "ann"})]


def test_without_an_active_one_all_is_said(servers: Servers) -> None:
    waiting = servers.start(lambda said: (403, STANDBY, ""))
    with pytest.raises(OSError, match=f"no NameNode answers: 127.0.0.1:{waiting} waits"):
        folder(1, waiting).files()


def test_a_data_node_that_is_away_is_left_out_by_its_address_and_not_asked_again_for_a_while(
    servers: Servers,
) -> None:
    """The NameNode sends to a lost machine for ten minutes."""
    data = servers.start(lambda said: (200, b"content", ""))

    def sent(said: dict[str, str]) -> Answer:
        host = f"127.0.0.1:{data}" if said.get("excludedatanodes") == "127.0.0.9" else "127.0.0.9:1"
        return 307, b"", f"http://{host}/webhdfs/v1/of/a?op={said['op']}"

    snapshots = folder(servers.start(sent))
    assert snapshots.read("a") == b"content"
    assert snapshots.read("a") == b"content"
    assert [said.get("excludedatanodes") for port, said in servers.asked if port != data] == [
        None,
        "127.0.0.9",
        "127.0.0.9",
    ]


def test_one_that_was_away_is_asked_where_there_is_no_other(servers: Servers) -> None:
    """It may be back: what has failed once does not stay without snapshots for that."""
    where = ["127.0.0.9:1"]

    def sent(said: dict[str, str]) -> Answer:
        if "excludedatanodes" in said:
            return (
                403,
                b'{"RemoteException":{"exception":"IOException","message":"Failed to find datanode"}}',
                "",
            )
        return 307, b"", f"http://{where[0]}/webhdfs/v1/of/a?op=OPEN"

    snapshots = folder(servers.start(sent))
    with pytest.raises(OSError, match="no DataNode answers"):
        snapshots.read("a")
    where[0] = f"127.0.0.1:{servers.start(lambda said: (200, b'content', ''))}"
    assert snapshots.read("a") == b"content"


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (404, FileNotFoundError, "File /of/a not found"),
        (401, PermissionError, "asks for Kerberos"),
        (403, OSError, "HDFS answers 403: Permission denied: user=ann"),
    ],
)
def test_a_refusal_says_why(status: int, error: type[OSError], said: str, servers: Servers) -> None:
    message = said.removeprefix("HDFS answers 403: ")
    body = json.dumps({"RemoteException": {"exception": "AnException", "message": message}}).encode()
    port = servers.start(lambda _: (status, body, ""))
    with pytest.raises(error, match=said):
        folder(port).read("a")
