"""A session with ZooKeeper: opened when it is first needed, every call with a time limit, errors of our own tree.

kazoo tries nothing again here but to connect. What is asked while there is no connection waits in its queue, so a
request that was given up may still be done; its callers use requests that harm nothing then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from grete.clock import Deadline, SystemClock
from grete.coordination.zookeeper import tickets
from grete.coordination.zookeeper.library import (
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    AuthFailedError,
    BadVersionError,
    ConnectionDropped,
    ConnectionLoss,
    InvalidACLError,
    KazooClient,
    KazooException,
    KazooTimeoutError,
    KeeperState,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RequestTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SASLException,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
)
from grete.coordination.zookeeper.settings import LOGIN_KEYS, TLS_KEYS, ZooKeeperSettings
from grete.errors import CoordinationError, CoordinationUnreachable, LoginRefused

_UNANSWERED = (
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
_CHANGED = (BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency)
_REFUSED = (AuthFailedError, InvalidACLError, NoAuthError, SASLException, SessionClosedRequireSaslError)
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_PAUSES_S = (0.05, 0.5)
_OVER = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)


class SessionOver(CoordinationUnreachable):
    """The session has expired or was closed: its ephemeral nodes are gone, or will be."""


Request = Callable[[KazooClient], Sequence[Any]]
"""Sends one request or several to a client, and returns its asynchronous results."""


class _LastWord(logging.Handler):
    """Keeps the last warning: kazoo says so, and nowhere else, why it cannot connect."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


class _Session(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client, which also shows for how long the servers keep a session, and why it is not let in.

    kazoo has no public way to either, so this builds on two of its methods.
    """

    def __init__(self, **options: Any) -> None:
        self.granted_s: float | None = None
        self.is_refused = False
        self.login_failure: str | None = None
        """Why the last attempt to log in failed; None once one has worked."""
        super().__init__(**options)
        connect = self._connection._connect

        def watched(*address: Any) -> tuple[float, float]:
            try:
                read_timeout_ms, connect_timeout_ms = connect(*address)
            except AuthFailedError as error:
                self.login_failure = tickets.said(error.__cause__) or "they did not accept the login"
                if tickets.is_outage(error.__cause__):
                    raise ConnectionDropped(self.login_failure) from error  # so that it is tried again
                raise
            self.login_failure = None
            self.granted_s = read_timeout_ms * 1.5 / 1000  # it reads for two thirds of a session
            return read_timeout_ms, connect_timeout_ms

        self._connection._connect = watched

    def _session_callback(self, state: str) -> None:
        self.is_refused = self.is_refused or state == KeeperState.AUTH_FAILED
        super()._session_callback(state)


class ZooKeeperClient:
    """One session at a time; a new one follows where one has expired. Safe to use from several threads."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._settings = settings
        self.acl = CREATOR_ALL_ACL if settings.is_owned else OPEN_ACL_UNSAFE
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._last_word = _LastWord(logging.WARNING)
        self._log = logging.Logger("kazoo.client")
        self._log.parent = logging.getLogger("grete.zookeeper")
        self._log.addHandler(self._last_word)

    @property
    def session_id(self) -> int | None:
        """The session; None while there is no connection."""
        known = None if self._session is None else self._session.client_id
        return None if known is None else known[0]

    @property
    def session_s(self) -> float:
        """For how long the servers keep a session that is not heard of."""
        granted_s = None if self._session is None else self._session.granted_s
        return self._settings.session_s if granted_s is None else min(granted_s, self._settings.session_s)

    def open(self) -> None:
        """Connect, if that has not been done.

        Raises:
            CoordinationUnreachable: no server answered in time.
            LoginRefused: they do not let us in, or show a certificate that is not trusted.
        """
        self._opened()

    def _opened(self) -> _Session:
        with self._lock:
            if self._session is not None and self._session.client_state not in _OVER:
                return self._session
            self._stop()
            session = self._session = _Session(
                hosts=self._settings.servers,
                timeout=self._settings.session_s,
                connection_retry=_RECONNECT,
                logger=self._log,
                **self._settings.client,
            )
            connected = session.start_async()
            deadline = Deadline(SystemClock(), self._settings.connect_s, pauses_s=_PAUSES_S)
            while not connected.wait(min(_PAUSES_S[1], deadline.left_s)):
                if session.is_refused:
                    raise self._refused(session.login_failure)
                if "certificate" in self._last_word.text.lower():
                    raise self._refused(self._last_word.text)
                if deadline.is_over:
                    why = self._last_word.text or "nothing listens there"
                    self._stop()
                    raise CoordinationUnreachable(
                        f"no ZooKeeper server of {self._settings.servers} answered within "
                        f"{self._settings.connect_s:g} s ({why}); check "
                        f"job.coordinator.zk.connect and the servers"
                    )
            return session

    def ask(self, request: Request, within_s: float) -> list[Any]:
        """The answers to requests that are sent together, in order; one that is refused raises kazoo's error.

        Raises:
            CoordinationUnreachable: no answer in time; what was asked may be done, even later. `SessionOver` where
                that is because the session is.
            LoginRefused: they do not let us in, or not do that.
        """
        session = self._opened()
        deadline = Deadline(SystemClock(), within_s)
        try:
            return [each.get(timeout=deadline.left_s) for each in request(session)]
        except _UNANSWERED as error:
            if session.is_refused:
                raise self._refused(session.login_failure) from error
            said = session.login_failure or str(error) or type(error).__name__
            is_over = isinstance(error, SessionExpiredError)
            raise (SessionOver if is_over else CoordinationUnreachable)(
                f"ZooKeeper at {self._settings.servers} did not answer within {within_s:g} s: {said}"
            ) from error
        except _REFUSED as error:
            raise self._refused(session.login_failure or str(error) or type(error).__name__) from error

    def transact(self, step: Callable[[KazooClient], Any], within_s: float) -> list[Any] | None:
        """The results of a transaction; None when it was not done, since a node is not as the transaction says.

        Raises:
            CoordinationUnreachable, LoginRefused: as `ask`.
        """
        [results] = self.ask(lambda session: [step(session).commit_async()], within_s)
        errors = [result for result in results if isinstance(result, KazooException)]
        for error in errors:
            if isinstance(error, _REFUSED):
                raise self._refused(str(error) or type(error).__name__)
            if not isinstance(error, _CHANGED):
                raise CoordinationError(f"ZooKeeper at {self._settings.servers} failed: {error!r}") from error
        return None if errors else list(results)

    def ask_again(self, request: Request, within_s: float) -> list[Any]:
        """As `ask`, again and again until there is an answer or the time is over: for what may be done twice."""
        deadline = Deadline(SystemClock(), within_s, pauses_s=_PAUSES_S)
        while True:
            try:
                return self.ask(request, max(deadline.left_s, _PAUSES_S[0]))
            except CoordinationUnreachable:
                if not deadline.pause():
                    raise

    def look(self, path: str, within_s: float) -> bool:
        """Whether a node is there."""
        [found] = self.ask_again(lambda session: [session.exists_async(path)], within_s)
        return found is not None

    def ensure(self, path: str, within_s: float) -> None:
        """Make a node and those above it, unless they are there."""
        self.ask_again(lambda session: [session.ensure_path_async(path, acl=self.acl)], within_s)

    def _refused(self, why: str | None) -> LoginRefused:
        return LoginRefused(
            f"the ZooKeeper servers {self._settings.servers} refused us, or we them: {why}. Check {LOGIN_KEYS}, the "
            f"rights of the path, and {TLS_KEYS}"
        )

    def close(self) -> None:
        """End the session, and with it every ephemeral node."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(KazooException, OSError):  # the servers find out by themselves
                session.stop()
                session.close()
