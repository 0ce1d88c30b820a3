"""What a browser does with pages: signs in, and fills in the form that does something."""

from __future__ import annotations

import re
from html import unescape

from starlette.testclient import TestClient

from grete.clock import SystemClock
from grete.server.rights import Right, Tokens, one_time_code

TOKENS = Tokens("read-token", "write-token")


def signed_in(browser: TestClient, right: Right) -> TestClient:
    code = one_time_code(right, f"{right}-token", SystemClock())
    answer = browser.get(f"/ui/sign-in?code={code}")
    assert (answer.status_code, answer.headers["location"]) == (303, "./")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert code not in cookie
    return browser


def form_of(page: str) -> dict[str, str]:
    """The hidden fields of the form that does something."""
    form = page[page.rindex('<form class="fields" method="post"') :]
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form)
    return {name: unescape(value) for name, value in found}
