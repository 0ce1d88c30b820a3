"""The pages of a coordinator, below `/ui` of its server: a session of a browser's has no right on the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.unit.finished_job import JOB
from tests.unit.server.test_server_access import View

from grete.clock import SystemClock
from grete.pages.job_pages import JobPages
from grete.server.app import build_app
from grete.server.rights import Right, Tokens, one_time_code

TOKENS = Tokens("read-token", "write-token", "container-token")


@pytest.fixture
def browser(job: Path) -> Iterator[TestClient]:
    pages = JobPages(JOB, TOKENS, 80)
    app = build_app(View(), tokens=TOKENS, hosts=frozenset({"localhost"}), pages=pages)
    yield TestClient(app, base_url="http://localhost", follow_redirects=False)
    pages.close()


def sign_in(browser: TestClient) -> None:
    code = one_time_code(Right.WRITE, "write-token", SystemClock())
    assert browser.get(f"/ui/sign-in?code={code}").status_code == 303


def test_a_browser_signs_in_to_the_job_of_the_coordinator(browser: TestClient) -> None:
    assert browser.get("/ui/").status_code == 401
    sign_in(browser)
    assert browser.get("/ui/job/orders/").status_code == 200
    assert browser.get("/ui/job/another/").status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/api/v1/job"),
        ("GET", "/api/v1/config"),
        ("GET", "/metrics"),
        ("POST", "/api/v1/job/stop"),
        ("POST", "/api/v1/containers/0/heartbeat"),
    ],
)
def test_a_session_of_a_browser_opens_no_route_of_the_api(
    browser: TestClient, method: str, path: str
) -> None:
    sign_in(browser)
    assert browser.request(method, path, json={} if method == "POST" else None).status_code == 401


@pytest.mark.parametrize("path", ["/uix", "/ui%0A", "/UI/", "/ui%2Fjob", "/api/v1/ui", "/ui/job/orders%0A/"])
def test_another_form_of_the_path_leads_nowhere(browser: TestClient, path: str) -> None:
    sign_in(browser)
    assert browser.get(path).status_code == 404


def test_a_token_of_the_api_opens_no_page(browser: TestClient) -> None:
    headers = {"authorization": "Bearer write-token"}
    assert browser.get("/ui/job/orders/", headers=headers).status_code == 401


def test_where_reading_is_free_pages_are_seen_and_nothing_is_done(job: Path) -> None:
    tokens = Tokens(None, "write-token", "container-token")
    pages = JobPages(JOB, tokens, 80)
    app = build_app(View(), tokens=tokens, hosts=frozenset({"localhost"}), pages=pages)
    browser = TestClient(app, base_url="http://localhost", follow_redirects=False)
    try:
        assert browser.get("/ui/job/orders/config").status_code == 200
        assert browser.get("/ui/", headers={"host": "evil.example"}).status_code == 421
        data = {"key": "task.commit.ms", "value": "1", "reason": "x", "form_key": ""}
        assert browser.post("/ui/job/orders/do/set", data=data).status_code == 409
    finally:
        pages.close()
