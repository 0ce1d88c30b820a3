"""Serving pages: of all jobs of a home by themselves (`grete ui`)."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from grete.clock import SystemClock
from grete.metadata.job_index import jobs
from grete.pages.job_pages import application
from grete.pages.sign_in import SignIn
from grete.pages.watch import Watch
from grete.server.guard import Guard
from grete.server.rights import Right, Tokens, one_time_code
from grete.server.serve import HttpServer, bind


@dataclass(frozen=True, slots=True)
class ServedPages:
    """Pages that can be asked for."""

    url: str
    right: Right
    token: str

    def link(self) -> str:
        """An address that signs a browser in, once and within a minute."""
        return f"{self.url}sign-in?code={one_time_code(self.right, self.token, SystemClock())}"


@contextmanager
def serve_pages(home: Path, port: int, *, may_write: bool) -> Iterator[ServedPages]:
    """Serve pages of all jobs of a home on the loopback.

    Raises:
        ConfigError: the port is taken.
    """
    token, right = secrets.token_urlsafe(32), Right.WRITE if may_write else Right.READ
    bound = bind("127.0.0.1", port)
    watch = Watch(lambda: jobs(home))
    sign_in = SignIn(
        Tokens(read=secrets.token_urlsafe(32), write=token) if may_write else Tokens(read=token),
        SystemClock(),
    )
    server = pages_server(watch, sign_in, bound)
    watch.start()
    server.start()
    try:
        yield ServedPages(f"{server.url}/ui/", right, token)
    finally:
        watch.close()
        server.close()


def pages_server(watch: Watch, sign_in: SignIn, bound: socket.socket) -> HttpServer:
    """A server of the pages of the jobs that are watched; neither is started."""
    cookie = f"grete-ui-{bound.getsockname()[1]}"

    def build(hosts: frozenset[str]) -> ASGIApp:
        app = application(watch, sign_in, cookie)
        app.add_middleware(Guard, hosts=hosts)
        return app

    return HttpServer(build, bound)
