"""Runs the HTTP server in a thread of its own, on a socket that is bound before anything else happens."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from grete.channel.tls import host_in_url
from grete.clock import Deadline, SystemClock
from grete.errors import ConfigError, JobError
from grete.failpoints import failpoint
from grete.private_files import private_directory, replace_file
from grete.server.app import CoordinatorView, StoreQueries, build_app
from grete.server.connections import bounded_protocol
from grete.server.rights import RenewedToken, TokenFiles, Tokens

_log = logging.getLogger("grete.coordinator")
_START_TIMEOUT_S = 10.0
_BACKLOG = 128
"""As many connections are accepted at once before anything else is done, each with a descriptor."""
_MAX_HEAD = 16 * 1024
"""Bytes of a request's line and headers, with which it is refused."""


def bind(host: str, port: int) -> socket.socket:
    """Bind early, so that a port in use fails before anything is written (fault 36).

    Raises:
        ConfigError: the port is taken or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol by name: asyncio sets TCP_NODELAY for no other, and a body waits 40 ms for the ACK of its head then
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"job.http.port={port}: cannot bind {host}:{port} ({error.strerror}); 0 takes a free port"
        ) from error
    return bound


def bind_beside(host: str, port: int, holder: str) -> socket.socket:
    """As `bind`, but on a free port where this one is taken: `holder` hangs, is taken over, and has it still.

    Raises:
        ConfigError: as `bind`, for any other reason.
    """
    try:
        return bind(host, port)
    except ConfigError as error:
        if not (isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE):
            raise
        _log.warning(
            "job.http.port=%s is still held by %s, which was taken over: serving on a free port until this job is "
            "run again; end that process",
            port,
            holder,
        )
        return bind(host, 0)


def write_token(path: Path, token: str | None = None) -> str:
    """A token, else a new one of 256 bits, in a file only its owner can read.

    At every moment the file holds a whole token, the new one or the one before: containers look for it meanwhile.
    """
    token = token or secrets.token_urlsafe(32)
    private_directory(path.parent)
    replace_file(path, token.encode(), once_written=lambda: failpoint("coordinator.token-created"))
    return token


def write_tokens(files: TokenFiles, *, needs_read: bool, metrics: RenewedToken | None = None) -> Tokens:
    """A new token for each right, in its file; for metrics the given one, which is there as it is now."""
    read, write, container = map(write_token, (files.read, files.write, files.container))
    drawn = write_token(files.metrics, None if metrics is None else metrics.now)
    return Tokens(read if needs_read else None, write, container, metrics or drawn)


class _Server(uvicorn.Server):
    """One that wakes once a second, for the date in its answers, and not ten times: jobs at rest are many."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_to_end = asyncio.Event()

    async def main_loop(self) -> None:
        """See uvicorn.Server."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_to_end.wait(), 1.0)

    def end(self) -> None:
        """Let it end, from another thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._is_to_end.set)


class HttpServer:
    """Serves an application until closed: by a thread of its own, with bounds on connections and heads."""

    def __init__(self, build: Callable[[frozenset[str]], ASGIApp], bound: socket.socket) -> None:
        """`build` is given the names of this host by which the application may be asked."""
        host, port = bound.getsockname()[:2]
        self.address = host, port
        self.url = f"http://{host_in_url(host)}:{port}"
        config = uvicorn.Config(
            build(frozenset({host, "localhost", "127.0.0.1", "[::1]"})),
            http=bounded_protocol(),
            backlog=_BACKLOG,
            log_config=None,  # its own would close every handler of the process: log streams had no more to say
            log_level="error",  # strangers could fill the log with what is no request
            lifespan="off",
            timeout_keep_alive=5,
            h11_max_incomplete_event_size=_MAX_HEAD,
        )
        self._server = _Server(config)
        self._bound = bound
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [bound]}, name="http", daemon=True
        )

    def start(self) -> None:
        """Start serving; returns when it answers.

        Raises:
            JobError: the server did not come up.
        """
        self._thread.start()
        deadline = Deadline(SystemClock(), _START_TIMEOUT_S, pauses_s=(0.01, 0.01))
        while not self._server.started:
            if not deadline.pause():
                raise JobError(f"the HTTP server at {self.url} did not start within {_START_TIMEOUT_S:g} s")

    def close(self) -> None:
        """Stop serving."""
        self._server.end()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self._bound.close()


def coordinator_server(
    view: CoordinatorView,
    bound: socket.socket,
    tokens: Tokens,
    pages: ASGIApp | None = None,
    *,
    names: frozenset[str] = frozenset(),
    stores: StoreQueries | None = None,
) -> HttpServer:
    """The server of a coordinator's view, its pages and its tasks' stores; `names` are further ones by which it may
    be asked.
    """

    def build(hosts: frozenset[str]) -> Starlette:
        return build_app(view, tokens=tokens, hosts=hosts | names, pages=pages, stores=stores)

    return HttpServer(build, bound)
