"""HTTP between machines: what is passed on to a coordinator's server, and what is refused."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from grete.channel.address import ChannelAddress, address_of
from grete.channel.certificate import Identity
from grete.channel.keyed_relay import KeyedRelay, listen_at
from grete.channel.tls import NONCE_BYTES, PROOF_BYTES, client_context, connect, exactly
from grete.errors import ConfigError, CoordinatorUnavailable, WireError
from grete.http_client import JobCoordinatorClient
from grete.testing.waiting import eventually

TOKEN = secrets.token_urlsafe(32)
HERE = "127.0.0.1"


class Answering(BaseHTTPRequestHandler):
    """Says what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path, **dict(self.headers), "padding": "x" * 200_000}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer((HERE, 0), Answering) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def relay(server: HTTPServer) -> Iterator[KeyedRelay]:
    made = KeyedRelay(listen_at("127.0.0.2"), "127.0.0.2", TOKEN, (HERE, server.server_port))
    made.start()
    with closing(made):
        yield made


def client(relay: KeyedRelay, server: HTTPServer, token: str = TOKEN) -> JobCoordinatorClient:
    url = f"http://{HERE}:{server.server_port}"
    return JobCoordinatorClient(url, None, channel=replace(relay.channel, token=token), timeout_s=5)


def test_requests_reach_the_server_on_the_loopback_as_if_they_came_from_there(
    relay: KeyedRelay, server: HTTPServer
) -> None:
    with closing(client(relay, server)) as asking:
        for path in ("/first", "/second"):
            seen = asking.get(path)
            assert seen["path"] == path
            assert seen["Host"] == f"{HERE}:{server.server_port}", (
                "the server's Host allow-list goes on to hold"
            )
            assert seen["Authorization"] == f"Bearer {TOKEN}"
            assert len(seen["padding"]) == 200_000


def test_one_with_another_token_is_told_nothing_and_says_nothing(
    relay: KeyedRelay, server: HTTPServer
) -> None:
    with (
        closing(client(relay, server, secrets.token_urlsafe(32))) as asking,
        pytest.raises(CoordinatorUnavailable, match=relay.channel.address.replace(".", r"\.")),
    ):
        asking.get("/job")


def test_a_server_that_has_not_the_token_gets_no_request() -> None:
    """One that listens where a coordinator did, and says that every proof is right: it would be sent the token."""
    heard: list[bytes] = []

    def impostor(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        context = Identity.create().context
        with accepted, context.wrap_socket(accepted, server_side=True) as connection:
            exactly(connection, NONCE_BYTES)
            connection.sendall(secrets.token_bytes(NONCE_BYTES + PROOF_BYTES))
            heard.append(connection.recv(1000))

    with listen_at(HERE) as listening:
        thread = threading.Thread(target=impostor, args=(listening,), daemon=True)
        thread.start()
        channel = ChannelAddress(f"{HERE}:{listening.getsockname()[1]}", TOKEN)
        with (
            closing(JobCoordinatorClient("http://127.0.0.1:1", None, channel=channel)) as asking,
            pytest.raises(CoordinatorUnavailable, match="the coordinator's proof is wrong"),
        ):
            asking.get("/job")
        thread.join(10)
    assert heard == [b""]


def test_plain_http_and_a_proof_of_another_connection_are_refused(relay: KeyedRelay) -> None:
    with socket.create_connection(address_of(relay.channel.address), 5) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)
    with (
        socket.create_connection(address_of(relay.channel.address), 5) as plain,
        client_context().wrap_socket(plain) as connection,
    ):
        connection.sendall(b"x" * NONCE_BYTES)
        exactly(connection, NONCE_BYTES + PROOF_BYTES)
        connection.sendall(b"x" * PROOF_BYTES)
        assert connection.recv(1000) == b""


def test_those_that_prove_nothing_do_not_keep_out_one_that_does(
    relay: KeyedRelay, server: HTTPServer
) -> None:
    """More connections than are waited for; the coordinator is asked again as soon as one of them has gone."""
    waiting = [socket.create_connection(address_of(relay.channel.address), 5) for _ in range(40)]
    for one in waiting:
        one.close()

    def answers() -> bool:
        with closing(client(relay, server)) as asking:
            try:
                return bool(asking.get("/job"))
            except CoordinatorUnavailable:
                return False

    eventually(answers, "it answers")


def test_connections_end_with_the_relay(server: HTTPServer) -> None:
    made = KeyedRelay(listen_at(HERE), HERE, TOKEN, (HERE, server.server_port))
    made.start()
    with connect(address_of(made.channel.address), made.channel.ends) as connection:
        made.close()
        assert connection.recv(10) == b""
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(address_of(made.channel.address), 5)


def test_an_address_of_another_machine_and_what_is_no_address_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"processor\.address=192\.0\.2\.1: it is no address of this machine"
    ):
        listen_at("192.0.2.1")
    with pytest.raises(WireError, match="is no address"):
        JobCoordinatorClient("http://127.0.0.1:1", None, channel=ChannelAddress("nowhere", TOKEN))
