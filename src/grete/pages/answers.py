"""What was made for a page is made once for all that ask within the same look at the job: a hundred open pages of a
job cost its coordinator as much as one.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grete.pages.sign_in import Session
from grete.server.rights import Right

Key = tuple[object, ...]
Render = Callable[[Mapping[str, Any], Session], str]
_GOOD_FOR_S = 1.0
"""All pages hear of a look within half a second; who comes later sees what is then."""
_MOST = 64
_KEPT_S = 10.0
_FORM_KEY = f"form-key-{secrets.token_hex(16)}"
"""Stands in what is shared for the key of the session that asks."""


@dataclass(slots=True)
class _SharedPage:
    lock: threading.Lock = field(default_factory=threading.Lock)
    asked_s: float = -math.inf
    look: int = -1
    made_s: float = -math.inf
    values: Mapping[str, Any] = field(default_factory=dict)
    pages: dict[Right, tuple[str, str]] = field(default_factory=dict)


class SharedAnswers:
    """The last answers by what was asked for. Thread-safe; bounded."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._answers: OrderedDict[Key, _SharedPage] = OrderedDict()

    def page(
        self, key: Key, look: int, session: Session, make: Callable[[], Mapping[str, Any]], render: Render
    ) -> tuple[Callable[[], str], str]:
        """The page for a session as a function that puts it together, and its tag.

        `make` and `render` are called once for all that ask at the same time, of the same look, with the same right.
        """
        answer = self._answer(key)
        with answer.lock:
            now_s = self._clock_s()
            if answer.look != look or now_s - answer.made_s > _GOOD_FOR_S:
                answer.values, answer.pages = make(), {}
                answer.look, answer.made_s = look, now_s
            if session.right not in answer.pages:
                body = render(answer.values, Session(session.right, _FORM_KEY, math.inf))
                answer.pages[session.right] = body, hashlib.sha256(body.encode()).hexdigest()[:32]
            body, tag = answer.pages[session.right]
        own = hashlib.sha256(session.form_key.encode()).hexdigest()[:8]
        return lambda: body.replace(_FORM_KEY, session.form_key), f'"{tag}{own}"'

    def _answer(self, key: Key) -> _SharedPage:
        """That of a key, as the newest; those that are old go, with the figures of 10,000 tasks that they hold."""
        with self._lock:
            answer = self._answers.setdefault(key, _SharedPage(asked_s=self._clock_s()))
            self._answers.move_to_end(key)
            answer.asked_s = self._clock_s()
            while len(self._answers) > _MOST or self._oldest_is_old():
                self._answers.popitem(last=False)
            return answer

    def _oldest_is_old(self) -> bool:
        oldest = next(iter(self._answers.values()))
        return self._clock_s() - oldest.asked_s > _KEPT_S

    def forget(self) -> None:
        """Something was changed: what is asked for next is made anew."""
        with self._lock:
            self._answers.clear()
