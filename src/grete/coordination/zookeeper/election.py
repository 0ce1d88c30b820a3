"""Leadership on ZooKeeper: an ephemeral node of the holder, below a node that counts epochs.

    /grete/leaderships/<scope>                  {"epoch": 7}
    /grete/leaderships/<scope>/<incarnation>    {"epoch": 7, "host": ..., "pid": ..., "since_ms": ...}   ephemeral

One transaction counts the epoch, removes the holder's node as the contender has seen it, and makes the contender's
own. So of many contenders one is elected, and a holder that renewed meanwhile is not succeeded. A node's name is its
incarnation's, so nothing written late meets another holder's node.

Two signs of life: the session, which servers end when they have not heard of a client for its timeout, so a holder
that died is succeeded then; and renewals, each of which writes the holder's own node. They stand still when a holder
hangs whose client goes on answering; a contender that sees them so for a TTL on its own clock succeeds it. What the
client believes of its own connection counts for nothing: after a pause it believes in a session that is over.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from grete.clock import Clock, Deadline, SystemClock
from grete.coordination.base import Coordination, Holder, Leadership, Look
from grete.coordination.cells import Cells
from grete.coordination.factory import CoordinationContext
from grete.coordination.patience import Patience
from grete.coordination.zookeeper.cells import ZooKeeperCells
from grete.coordination.zookeeper.client import SessionOver, ZooKeeperClient
from grete.coordination.zookeeper.library import KazooClient, NodeExistsError, NoNodeError
from grete.coordination.zookeeper.paths import LEADERSHIPS, node_name
from grete.coordination.zookeeper.settings import ZooKeeperSettings, zookeeper_settings
from grete.errors import CoordinationError, CoordinationUnreachable, HeldByOther, LeadershipLost
from grete.failpoints import failpoint

_CALLS_IN_TTL = 6
_SHARE_OF_SESSION = 2 / 3
"""Servers of an ensemble learn of each other's clients half a tick late, and a session is two ticks at least."""
_PAUSES_S = (0.02, 0.5)
_ANY = -1
_MOST_FROM_ZXID = 2**39
"""Half of the largest epoch that the coordinator stream takes for one of an election."""


@dataclass(frozen=True, slots=True)
class _Counter:
    """The node that counts epochs. `epoch` is at least the transaction in which it was made: it grows when remade."""

    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class _Held:
    """A holder's node. `renewals` is its version."""

    path: str
    epoch: int
    holder: Holder
    renewals: int


@dataclass(frozen=True, slots=True)
class _Own:
    """A node of ours, and the session that it lives as long as."""

    value: bytes
    session_id: int


def open_coordination(context: CoordinationContext) -> ZooKeeperCoordination:
    """On the servers that `job.coordinator.zk.connect` names, wherever the coordinator stream is."""
    settings = zookeeper_settings(context.settings.zookeeper, ttl_s=context.ttl_s)
    return ZooKeeperCoordination(settings, context.clock, ttl_s=context.ttl_s)


class ZooKeeperCoordination(Coordination):
    """Leader election below one path of ZooKeeper. A call takes a sixth of a TTL, the first as long as connecting."""

    def __init__(self, settings: ZooKeeperSettings, clock: Clock, *, ttl_s: float = 15.0) -> None:
        self._client = ZooKeeperClient(settings)
        self._clock = clock
        self._ttl_s = ttl_s
        self._timeout_s = ttl_s / _CALLS_IN_TTL
        self._patience = Patience(clock, ttl_s=ttl_s)
        self._own: dict[str, _Own] = {}

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """See Coordination. A TTL at most, once there is a connection.

        Raises:
            CoordinationUnreachable: the servers did not answer in time. A node that is made after all is removed with
                the session, by `close`.
            LoginRefused: they do not let us in.
        """
        self._client.open()
        asked_s = self._clock.monotonic_s()
        now_ms = self._clock.wall_ms()
        me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, now_ms)
        deadline = Deadline(SystemClock(), self._ttl_s, pauses_s=_PAUSES_S)
        while True:
            try:
                epoch = self._elected(scope, me, take_over, epoch_floor)
            except CoordinationUnreachable:  # whether it was done is read from the nodes
                if not deadline.pause():
                    raise
                continue
            if epoch is not None:
                return Leadership(scope, epoch, me.incarnation, self._until_s(asked_s))
            if deadline.is_over:
                raise CoordinationUnreachable(f"the election of {scope} changed faster than it could be read")

    def _elected(self, scope: str, me: Holder, take_over: bool, epoch_floor: int) -> int | None:
        """The epoch, or None when the nodes have changed since they were read."""
        session_id = self._client.session_id
        counter, held = self._look(scope)
        for each in held:
            if each.holder.incarnation == me.incarnation:  # our own attempt, whose answer did not come
                return each.epoch
            if not take_over and not self._patience.is_over(scope, each.holder.incarnation, each.renewals):
                may_be_dead = not self._patience.has_moved(scope)
                raise HeldByOther(scope, each.holder.described(), may_be_dead=may_be_dead)
        if counter is None:
            self._make_counter(scope)
            return None
        if session_id is None:
            raise CoordinationUnreachable(
                f"the connection to ZooKeeper was lost before an election of {scope}"
            )
        epoch = 1 + max(counter.epoch, epoch_floor)
        own = _Own(_encode(epoch, me), session_id)

        def elect(session: KazooClient) -> Any:
            step = session.transaction()
            step.set_data(_path(scope), orjson.dumps({"epoch": epoch}), version=counter.version)
            for each in held:
                step.delete(each.path, version=_ANY if take_over else each.renewals)
            path = f"{_path(scope)}/{me.incarnation}"
            step.create(path, own.value, acl=self._client.acl, ephemeral=True)
            return step

        self._own[me.incarnation] = own
        if self._client.transact(elect, self._timeout_s) is None:
            return None
        failpoint("leader.elected")
        return epoch

    def _make_counter(self, scope: str) -> None:
        self._client.ensure(LEADERSHIPS, self._timeout_s)
        empty = orjson.dumps({"epoch": 0})
        with suppress(NodeExistsError):
            self._client.ask(
                lambda session: [session.create_async(_path(scope), empty, acl=self._client.acl)],
                self._timeout_s,
            )

    def _look(self, scope: str) -> tuple[_Counter | None, list[_Held]]:
        """The nodes of a scope, as new as what any process had written before the call."""
        path = _path(scope)
        try:
            _, (value, stat), names = self._client.ask_again(
                lambda session: [
                    session.sync_async(path),
                    session.get_async(path),
                    session.get_children_async(path),
                ],
                self._timeout_s,
            )
        except NoNodeError:
            return None, []
        made = stat.czxid if stat.czxid < _MOST_FROM_ZXID else 0
        counter = _Counter(max(_epoch(path, value), made), stat.version)
        found = (self._holder_at(f"{path}/{name}") for name in names)
        return counter, [each for each in found if each is not None]

    def _holder_at(self, path: str) -> _Held | None:
        """None when its session has ended."""
        try:
            [(value, stat)] = self._client.ask_again(
                lambda session: [session.get_async(path)], self._timeout_s
            )
        except NoNodeError:
            return None
        return _decode(path, value, stat.version)

    def _until_s(self, asked_s: float) -> float:
        """Earlier than any contender's patience ends, and than the servers end the session."""
        return min(self._patience.until_s(asked_s), asked_s + self._client.session_s * _SHARE_OF_SESSION)

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination. While servers do not answer, the leadership comes back as it is, for a TTL at most."""
        own = self._own.get(leadership.incarnation)
        if own is None:
            return None
        asked_s = self._clock.monotonic_s()
        path = f"{_path(leadership.scope)}/{leadership.incarnation}"
        try:
            [stat] = self._client.ask(lambda session: [session.set_async(path, own.value)], self._timeout_s)
        except (NoNodeError, SessionOver):
            return self._forget(leadership)
        except CoordinationUnreachable:
            if self._client.session_id not in (None, own.session_id):
                return self._forget(leadership)  # the session has expired, and its nodes with it
            return self._patience.unanswered(leadership)
        if stat.ephemeralOwner != own.session_id or self._client.session_id != own.session_id:
            return self._forget(leadership)
        return replace(leadership, valid_until_s=self._until_s(asked_s))

    def _forget(self, leadership: Leadership) -> Leadership | None:
        self._own.pop(leadership.incarnation, None)
        return None

    def release(self, leadership: Leadership) -> None:
        """See Coordination.

        Raises:
            CoordinationUnreachable: the servers did not answer in time; the leadership expires by itself.
        """
        path = f"{_path(leadership.scope)}/{leadership.incarnation}"
        self._own.pop(leadership.incarnation, None)
        with suppress(NoNodeError):  # its name is of one incarnation: removing it twice removes nothing else
            self._client.ask_again(lambda session: [session.delete_async(path)], self._timeout_s)
        failpoint("leader.released")

    def forget(self, leadership: Leadership) -> None:
        """See Coordination. Its nodes go.

        Raises:
            CoordinationUnreachable: the servers did not answer in time.
        """
        scope, path = leadership.scope, _path(leadership.scope)

        def remove(session: KazooClient) -> Any:
            step = session.transaction()
            step.delete(f"{path}/{leadership.incarnation}")
            step.delete(path)
            return step

        if self._client.transact(remove, self._timeout_s) is None:
            raise LeadershipLost(f"{scope} is led by another process: it is not forgotten")
        self._own.pop(leadership.incarnation, None)
        self.cells(scope).clear()

    def _held(self, scope: str) -> _Held | None:
        _, held = self._look(scope)
        return max(held, key=lambda each: each.epoch, default=None)

    def holder(self, scope: str) -> Holder | None:
        """See Coordination. One that died is returned until its session ends."""
        held = self._held(scope)
        return None if held is None else held.holder

    def leading_epoch(self, scope: str) -> int | None:
        """See Coordination."""
        return self.look(scope).epoch

    def is_silent(self, scope: str) -> bool:
        """See Coordination."""
        return self.look(scope).is_silent

    def look(self, scope: str) -> Look:
        """See Coordination."""
        held = self._held(scope)
        if held is None:
            return Look(None, False)
        return Look(held.epoch, self._patience.is_over(scope, held.holder.incarnation, held.renewals))

    def cells(self, scope: str) -> Cells:
        """See Coordination."""
        return ZooKeeperCells(self._client, scope, timeout_s=self._ttl_s)

    def close(self) -> None:
        """See Coordination."""
        self._client.close()


def _path(scope: str) -> str:
    return f"{LEADERSHIPS}/{node_name(scope)}"


def _encode(epoch: int, holder: Holder) -> bytes:
    return orjson.dumps({"epoch": epoch, **asdict(holder)})


def _epoch(path: str, value: bytes) -> int:
    try:
        return int(orjson.loads(value)["epoch"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error


def _decode(path: str, value: bytes, version: int) -> _Held:
    try:
        document = orjson.loads(value)
        epoch = int(document.pop("epoch"))
        return _Held(path, epoch, Holder(**document), version)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path) from error


def _damaged(path: str) -> CoordinationError:
    return CoordinationError(f"the node {path} of ZooKeeper holds no leadership; delete it to elect again")
