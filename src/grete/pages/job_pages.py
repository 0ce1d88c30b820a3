"""The pages of one job, served by its coordinator below `/ui`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.server.rights import Tokens

if TYPE_CHECKING:
    from grete.pages.sign_in import SignIn
    from grete.pages.watch import Watch


class JobPages:
    """The pages of one job, in the process of its coordinator: nothing of them is loaded before somebody looks."""

    def __init__(self, job: JobId, tokens: Tokens, port: int) -> None:
        self._job = job
        self._tokens = tokens
        self._cookie = f"grete-ui-{port}"
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app
        if app is None:
            app = await run_in_threadpool(self._begin)
        await app(scope, receive, send)

    def _begin(self) -> ASGIApp:
        from grete.pages.sign_in import SignIn
        from grete.pages.watch import Watch

        with self._lock:
            if self._watch is None:
                self._watch = Watch(lambda: [self._job])
                self._watch.start()
                self._app = application(self._watch, SignIn(self._tokens, SystemClock()), self._cookie)
            assert self._app is not None
            return self._app

    def close(self) -> None:
        """Look at the job no more."""
        if self._watch is not None:
            self._watch.close()


def application(watch: Watch, sign_in: SignIn, cookie: str) -> Starlette:
    """The pages of the jobs that are watched."""
    from grete.pages.site import Pages  # the templates' library

    app = Starlette(routes=Pages(watch, sign_in, cookie).routes())
    app.router.redirect_slashes = False
    return app
