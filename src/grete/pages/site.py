"""The pages as routes of a Starlette application: who may see them, how they are rendered, what they may do.

Nothing that a page needs is on another host, no script stands in a page, and no page is a frame of another site. A
form that changes something carries a key of its session, on top of the cookie that browsers send to this site alone.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute

from grete.config.settings.coordinator import is_loopback
from grete.errors import ConfigError, GreteError, JobError, JobNotFound
from grete.model.ids import JobId
from grete.operations.job_handle import JobHandle, open_job
from grete.operations.job_status import empty_row
from grete.pages import views
from grete.pages.actions import ACTIONS, Action, Form, changed_since, seen
from grete.pages.answers import SharedAnswers
from grete.pages.drawing import spark_line
from grete.pages.rendering import Renderer
from grete.pages.sign_in import Session, SignIn
from grete.pages.watch import Watch, rate_now, rates
from grete.server.rights import Right
from grete.server.routes import ExactRoute

_STATIC = Path(__file__).with_name("static")
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # without any, browsers send forms from the origin "null"
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
}
_HTML = "text/html; charset=utf-8"
_MOST_FORM = 64 << 10
_MOST_LISTENERS = 200
_MOST_NOTES = 200
_BEAT_S = 15.0
"""Pages that hear nothing for longer say that the server is gone."""

Endpoint = Callable[[Request, Session], Awaitable[Response]]
PAGES = {
    "": "Overview",
    "work": "Work",
    "checkpoints": "Checkpoints",
    "config": "Configuration",
    "failures": "Failures and logs",
    "streams": "Streams",
    "coordination": "Coordination",
}


class Pages:
    """Every page, over the jobs that a `Watch` looks at."""

    def __init__(self, watch: Watch, sign_in: SignIn, cookie: str) -> None:
        """`cookie` is the name of the session's cookie: browsers keep one jar for all ports of a host."""
        self._watch = watch
        self._sign_in = sign_in
        self._cookie = cookie
        self._renderer = Renderer()
        self._free = Session(Right.READ, "", math.inf) if sign_in.is_reading_free else None
        self._listeners = 0
        self._answers = SharedAnswers()
        self._notes: OrderedDict[str, str] = OrderedDict()

    def routes(self) -> list[BaseRoute]:
        """All of them below `/ui`."""
        found = [
            ExactRoute("/ui", self._to_home, methods=["GET"]),
            ExactRoute("/ui/static/{name}", self._static, methods=["GET"]),
            ExactRoute("/ui/sign-in", self._enter, methods=["GET"]),
            ExactRoute("/ui/sign-out", self._leave, methods=["POST"]),
        ]
        seen_by_all: list[tuple[str, str, Endpoint]] = [
            ("GET", "/ui/", self._home),
            ("GET", "/ui/events", self._events),
            ("GET", "/ui/job/{job}/", self._job_page),
            ("GET", "/ui/job/{job}/{page}", self._job_page),
            ("GET", "/ui/job/{job}/do/{action}", self._preview),
            ("POST", "/ui/job/{job}/do/{action}", self._do),
        ]
        found += [ExactRoute(path, self._guarded(of), methods=[method]) for method, path, of in seen_by_all]
        return list(found)

    # --- who ---

    def _guarded(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            session = self._sign_in.session(request.cookies.get(self._cookie, "")) or self._free
            if session is None:
                return self._page(request, "sign_in.html", {"title": "Sign in"}, None, status=401)
            try:
                return await endpoint(request, session)
            except JobNotFound as error:
                return self._refusal(request, session, 404, error)
            except GreteError as error:
                return self._refusal(request, session, 503 if error.may_pass else 409, error)

        return guarded

    def _refusal(self, request: Request, session: Session, status: int, error: GreteError) -> Response:
        values = {"title": "This cannot be shown", "message": str(error)}
        return self._page(request, "error.html", values, session, status=status)

    async def _enter(self, request: Request) -> Response:
        cookie = self._sign_in.redeem(request.query_params.get("code", ""))
        if cookie is None:
            values = {"title": "Sign in", "is_used": True}
            return self._page(request, "sign_in.html", values, None, status=403)
        response = RedirectResponse("./", status_code=303, headers=_HEADERS)
        # others reach this server over TLS alone
        is_secure = not is_loopback(request.url.hostname or "")
        response.set_cookie(
            self._cookie, cookie, httponly=True, samesite="strict", path="/", secure=is_secure
        )
        return response

    async def _leave(self, request: Request) -> Response:
        cookie = request.cookies.get(self._cookie, "")
        session = self._sign_in.session(cookie)
        if session is not None and (await _form(request)).get("form_key") == session.form_key:
            self._sign_in.end(cookie)
        return RedirectResponse("./", status_code=303, headers=_HEADERS)

    # --- pages ---

    async def _to_home(self, _: Request) -> Response:
        return RedirectResponse("ui/", headers=_HEADERS)

    async def _static(self, request: Request) -> Response:
        path = _STATIC / request.path_params["name"]
        if path.suffix not in _KINDS or path not in set(_STATIC.iterdir()):
            return Response(status_code=404)
        headers = {**_HEADERS, "cache-control": "max-age=60"}
        return Response(path.read_bytes(), media_type=_KINDS[path.suffix], headers=headers)

    async def _home(self, request: Request, session: Session) -> Response:
        return await self._shared(request, session, "jobs.html", self._jobs)

    def _jobs(self) -> dict[str, Any]:
        rows = self._watch.rows()
        jobs = [
            row | self._course(job) | {"address": _address(job)}
            for job, row in sorted(rows.items(), key=lambda item: item[0])
        ]
        return {"title": "Jobs", "jobs": jobs}

    def _course(self, job: JobId) -> dict[str, Any]:
        samples = self._watch.samples(job)
        return {"rate": rate_now(samples), "course": spark_line(rates(samples[-300:]))}

    async def _job_page(self, request: Request, session: Session) -> Response:
        job, page = await self._job(request), request.path_params.get("page", "")
        if page not in PAGES:
            raise JobNotFound(f"there is no page {page!r} of a job")
        query = dict(request.query_params)

        def make() -> dict[str, Any]:
            title = f"{job.shown}: {PAGES[page]}"
            common = {"title": title, "job": job.shown, "page": page, "query": query}
            return self._values(job, page, query) | common

        return await self._shared(request, session, f"{page or 'overview'}.html", make)

    async def _shared(
        self, request: Request, session: Session, template: str, make: Callable[[], Mapping[str, Any]]
    ) -> Response:
        """A page that all sessions of a right see alike, but for the key of their forms."""

        def page() -> tuple[Callable[[], str], str]:
            def render(values: Mapping[str, Any], reader: Session) -> str:
                return self._renderer.render(template, self._common(request, reader) | dict(values))

            self._watch.want()
            key = (request.url.path, request.url.query)
            return self._answers.page(key, self._watch.number, session, make, render)

        body, tag = await run_in_threadpool(page)
        headers = {**_HEADERS, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body(), media_type=_HTML, headers=headers)

    async def _job(self, request: Request) -> JobId:
        job = JobId.parse(request.path_params["job"])
        if not await run_in_threadpool(
            self._watch.knows, job
        ):  # a coordinator's pages are of its own job, whatever else the home has
            raise JobNotFound(f"there is no job {job.shown} here")
        return job

    def _values(self, job: JobId, page: str, query: Mapping[str, str]) -> dict[str, Any]:
        row = self._watch.rows().get(job) or empty_row(job, "being looked at", "")
        with open_job(job) as handle:
            match page:
                case "work":
                    return views.work(handle, row, self._watch, query)
                case "checkpoints":
                    return views.checkpoints(handle, query)
                case "config":
                    return views.configuration(handle, query)
                case "failures":
                    return views.failures(handle, query)
                case "streams":
                    from grete.pages.stream_views import streams  # Arrow

                    return streams(handle, query)
                case "coordination":
                    return views.coordination(handle)
                case _:
                    return views.overview(handle, row, self._watch, query)

    # --- actions ---

    def _action(self, handle: JobHandle, name: str, form: Form) -> Action:
        if name not in ACTIONS:
            raise JobError(f"there is nothing called {name!r} to do")
        return ACTIONS[name](handle, form)

    async def _preview(self, request: Request, session: Session) -> Response:
        form = dict(request.query_params)
        return await self._confirm(request, session, form, changed=(), problem="")

    async def _confirm(
        self, request: Request, session: Session, form: Form, *, changed: Sequence[str], problem: str
    ) -> Response:
        job, name = await self._job(request), request.path_params["action"]

        def look() -> dict[str, Any]:
            with open_job(job) as handle:
                action = self._action(handle, name, form)
                mark = seen(handle)
                return {"action": action, "preview": action.preview(), "seen": mark}

        values = await run_in_threadpool(look)
        values |= {
            "title": f"{job.shown}: {values['action'].title}",
            "job": job.shown,
            "page": None,
            "name": name,
            "reason": form.get("reason", ""),
            "changed": changed,
            "problem": problem,
        }
        return self._page(request, "confirm.html", values, session, status=409 if changed or problem else 200)

    async def _do(self, request: Request, session: Session) -> Response:
        job, name = await self._job(request), request.path_params["action"]
        form = await _form(request)
        if not session.may_write or form.get("form_key") != session.form_key:
            raise JobError(
                "this session may look only, or the form is of another one: open a link with the right to write"
            )
        reason = form.get("reason", "").strip()
        if not reason:
            return await self._confirm(
                request, session, form, changed=(), problem="Say why: it stands in the history."
            )

        def do() -> tuple[list[str], str]:
            with open_job(job) as handle:
                action = self._action(handle, name, form)
                changed = changed_since(handle, form.get("seen", ""))
                return changed, "" if changed else action.execute(reason)

        changed, done = await run_in_threadpool(do)
        if changed:
            return await self._confirm(request, session, form, changed=changed, problem="")
        self._answers.forget()
        self._watch.look_again()
        return RedirectResponse(f"../?done={self._note(done)}", status_code=303, headers=_HEADERS)

    def _note(self, done: str) -> str:
        """Keep what was done for the page that says it: an address of a stranger's must not put words into one."""
        number = secrets.token_urlsafe(6)
        self._notes[number] = done
        while len(self._notes) > _MOST_NOTES:
            self._notes.popitem(last=False)
        return number

    # --- what comes ---

    async def _events(self, request: Request, session: Session) -> Response:
        if self._listeners >= _MOST_LISTENERS:
            return Response("too many pages listen", status_code=503, headers=_HEADERS)
        headers = {**_HEADERS, "x-accel-buffering": "no"}
        return StreamingResponse(self._ticks(request), media_type="text/event-stream", headers=headers)

    async def _ticks(self, request: Request) -> AsyncIterator[str]:
        """An event after each look at the jobs, and a comment when nothing is looked at for a while."""
        self._listeners += 1
        try:
            known, silent_s = self._watch.number, 0.0
            yield "retry: 2000\n\n"
            while not self._watch.is_closed:
                await asyncio.sleep(0.5)
                silent_s += 0.5
                self._watch.want()
                if self._watch.number != known:
                    known, silent_s = self._watch.number, 0.0
                    yield f"event: look\ndata: {known}\n\n"
                elif silent_s >= _BEAT_S:
                    silent_s = 0.0
                    yield ": still here\n\n"
        finally:
            self._listeners -= 1

    def _page(
        self,
        request: Request,
        template: str,
        values: Mapping[str, Any],
        session: Session | None,
        *,
        status: int = 200,
    ) -> Response:
        body = self._renderer.render(template, self._common(request, session) | dict(values))
        return Response(body, status_code=status, media_type=_HTML, headers=_HEADERS)

    def _common(self, request: Request, session: Session | None) -> dict[str, Any]:
        """What every page needs."""
        return {
            "root": "../" * (request.url.path.count("/") - 2) or "./",
            "session": session,
            "pages": PAGES,
            "done": self._notes.get(request.query_params.get("done", ""), ""),
        }


def _address(job: JobId) -> str:
    """The job's part of an address."""
    return quote(job.shown, safe="")


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form.

    Raises:
        ConfigError: it is too large, or no form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise ConfigError("this is no form")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM:
            raise ConfigError(f"a form has at most {_MOST_FORM:,} bytes")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
