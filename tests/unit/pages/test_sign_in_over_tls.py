"""The cookie of a browser that comes over TLS is never sent without it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.unit.pages.browser import TOKENS

from grete.clock import SystemClock
from grete.model.ids import JobId
from grete.pages.job_pages import JobPages
from grete.server.rights import Right, one_time_code


@pytest.mark.parametrize(
    ("site", "is_secure"), [("http://127.0.0.1:8080", False), ("https://jobs.example.org:8443", True)]
)
def test_a_cookie_is_for_tls_alone_where_the_page_came_over_it(
    home: Path, site: str, is_secure: bool
) -> None:
    with closing(JobPages(JobId("job"), TOKENS, 8080)) as pages:
        browser = TestClient(pages, base_url=site, follow_redirects=False)
        code = one_time_code(Right.READ, str(TOKENS.read), SystemClock())
        cookie = browser.get(f"/ui/sign-in?code={code}").headers["set-cookie"]
    assert ("Secure" in cookie) is is_secure
