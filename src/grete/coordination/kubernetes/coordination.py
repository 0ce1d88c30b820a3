"""Leadership on Kubernetes: a Lease for each scope, in one namespace.

Each write carries the version of the Lease that was read, so the API server refuses all but the first of those who
have read the same. A holder that hangs or died is known by its renewals, which stand still for a whole TTL on the
contender's own clock; the times in the Lease are for people. The Lease outlives terms and holds the epoch; where it
was deleted, `epoch_floor` takes its place.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from grete.clock import Clock, Deadline, SystemClock
from grete.coordination.base import Coordination, Holder, Leadership, Look
from grete.coordination.cells import Cells
from grete.coordination.factory import CoordinationContext
from grete.coordination.kubernetes.access import find_access
from grete.coordination.kubernetes.api_server import ApiServer, Document
from grete.coordination.kubernetes.cells import KubernetesCells
from grete.coordination.kubernetes.lease import (
    LeaseState,
    elected,
    lease_name,
    read_lease,
    released,
    renewed,
)
from grete.coordination.patience import Patience, renewal_s
from grete.errors import CoordinationUnreachable, HeldByOther, LeadershipLost

_CALLS_IN_TTL = 6
_PAUSES_S = (0.02, 0.5)
_SHORTEST_CALL_S = 0.05
_log = logging.getLogger("grete.coordinator")

Decide = Callable[[LeaseState | None], Document | None]


def open_coordination(context: CoordinationContext) -> KubernetesCoordination:
    """On the API server that the configuration names, else the pod's own, else the one of the user's kubeconfig."""
    settings = context.settings.kubernetes
    access = find_access(settings)
    return KubernetesCoordination(
        ApiServer(access),
        context.clock,
        ttl_s=context.ttl_s,
        namespace=settings.namespace or access.namespace or "default",
        prefix=settings.lease_prefix,
    )


class KubernetesCoordination(Coordination):
    """Leader election in Leases, one a scope."""

    LOOKS_IN_TTL: ClassVar[float] = 10
    """Each is a request to a server that a whole cluster shares."""

    def __init__(
        self,
        server: ApiServer,
        clock: Clock,
        *,
        ttl_s: float = 15.0,
        namespace: str = "default",
        prefix: str = "grete",
    ) -> None:
        """A renewal or release takes about a sixth of a TTL at most, a campaign a TTL."""
        self._server = server
        self._clock = clock
        self._ttl_s = ttl_s
        self._timeout_s, self._renewal_s = ttl_s / _CALLS_IN_TTL, renewal_s(ttl_s)
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._prefix = prefix
        self._patience = Patience(clock, ttl_s=ttl_s)
        self._written: dict[str, LeaseState] = {}
        """What was last written for each scope, so that a renewal is one request."""

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """See Coordination.

        Raises:
            CoordinationUnreachable: the API server did not answer in time.
            CoordinationError: it refuses us, or the Lease is not grete's.
        """
        asked_s = self._clock.monotonic_s()
        now_ms = self._clock.wall_ms()
        me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, now_ms, heard_ms=now_ms)

        def decide(lease: LeaseState | None) -> Document | None:
            if lease is not None and lease.holder is not None:
                if lease.holder.incarnation == me.incarnation:  # our own attempt, whose answer did not come
                    return None
                if not take_over and not self._patience.is_over(scope, lease.epoch, lease.renewals):
                    may_be_dead = not self._patience.has_moved(scope)
                    raise HeldByOther(scope, lease.holder.described(), may_be_dead=may_be_dead)
            epoch = 1 + max(0 if lease is None else lease.epoch, epoch_floor)
            return elected(lease, self._name(scope), scope, epoch, me, self._ttl_s)

        won = self._change(scope, decide, self._ttl_s)
        assert won is not None, "an election leaves a Lease"
        return Leadership(scope, won.epoch, me.incarnation, self._patience.until_s(asked_s))

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination. While no API server answers, the leadership comes back as it is, for a TTL at most."""
        asked_s = self._clock.monotonic_s()

        def decide(lease: LeaseState | None) -> Document | None:
            if lease is None or lease.holder is None or not lease.is_held_by(leadership):
                return None
            return renewed(lease, replace(lease.holder, heard_ms=self._clock.wall_ms()))

        try:
            lease = self._change(leadership.scope, decide, self._renewal_s, self._last_written(leadership))
        except CoordinationUnreachable as error:
            _log.info("the leadership of %s was not renewed: %s", leadership.scope, error)
            return self._patience.unanswered(leadership)
        if lease is None or not lease.is_held_by(leadership):
            return None
        return replace(leadership, valid_until_s=self._patience.until_s(asked_s))

    def release(self, leadership: Leadership) -> None:
        """See Coordination.

        Raises:
            CoordinationUnreachable: the API server did not answer in time; the leadership expires by itself.
        """

        def decide(lease: LeaseState | None) -> Document | None:
            return released(lease) if lease is not None and lease.is_held_by(leadership) else None

        self._change(leadership.scope, decide, self._timeout_s, self._last_written(leadership))

    def forget(self, leadership: Leadership) -> None:
        """See Coordination. The Lease and those of the cells go.

        Raises:
            CoordinationUnreachable: the API server did not answer in time.
            CoordinationError: it does not let us delete.
        """
        scope = leadership.scope
        deadline = Deadline(SystemClock(), self._ttl_s, pauses_s=_PAUSES_S)
        while True:
            lease = self._read(scope, deadline)
            if lease is None or not lease.is_held_by(leadership):
                raise LeadershipLost(f"{scope} is led by another process: it is not forgotten")
            metadata = lease.document["metadata"]
            version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            if self._server.remove(f"{self._path}/{self._name(scope)}", version, _left(deadline)):
                break
        self._written.pop(scope, None)
        self.cells(scope).clear()

    def holder(self, scope: str) -> Holder | None:
        """See Coordination. A dead holder is returned until another one leads: it looks like a slow one.

        Its last renewal is the only sign of life.
        """
        lease = self._read(scope, Deadline(SystemClock(), self._timeout_s, pauses_s=_PAUSES_S))
        return None if lease is None else lease.holder

    def leading_epoch(self, scope: str) -> int | None:
        """See Coordination; of a dead holder too, as in `holder`."""
        return self.look(scope).epoch

    def is_silent(self, scope: str) -> bool:
        """See Coordination."""
        return self.look(scope).is_silent

    def look(self, scope: str) -> Look:
        """See Coordination."""
        lease = self._read(scope, Deadline(SystemClock(), self._timeout_s, pauses_s=_PAUSES_S))
        if lease is None or lease.holder is None:
            return Look(None, False)
        return Look(lease.epoch, self._patience.is_over(scope, lease.epoch, lease.renewals))

    def cells(self, scope: str) -> Cells:
        """See Coordination."""
        return KubernetesCells(self._server, self._path, self._prefix, scope, timeout_s=self._timeout_s)

    def close(self) -> None:
        """See Coordination."""
        self._server.close()

    def _name(self, scope: str) -> str:
        return lease_name(self._prefix, scope)

    def _last_written(self, leadership: Leadership) -> LeaseState | None:
        lease = self._written.get(leadership.scope)
        return lease if lease is not None and lease.is_held_by(leadership) else None

    def _change(
        self, scope: str, decide: Decide, timeout_s: float, known: LeaseState | None = None
    ) -> LeaseState | None:
        """Write what `decide` makes of the Lease, again as often as another process was faster; None leaves it.

        Returns the Lease as it is in the end. A write without an answer is followed by reading, and `decide`
        recognises what it has written. `known` is tried first, instead of a read.
        """
        deadline = Deadline(SystemClock(), timeout_s, pauses_s=_PAUSES_S, spread=random.random)
        before = known or self._read(scope, deadline)
        while True:
            document = decide(before)
            if document is None:
                return before
            try:
                written = self._write(scope, before, document, _left(deadline))
            except CoordinationUnreachable:
                if not deadline.pause():
                    raise
            else:
                if written is not None:
                    self._written[scope] = written
                    return written
                if deadline.is_over:
                    raise CoordinationUnreachable(f"the Lease of {scope} kept changing for {timeout_s:.1f} s")
            before = self._read(scope, deadline)

    def _write(
        self, scope: str, before: LeaseState | None, document: Document, timeout_s: float
    ) -> LeaseState | None:
        if before is None:
            answer = self._server.create(self._path, document, timeout_s)
        else:
            answer = self._server.replace(f"{self._path}/{self._name(scope)}", document, timeout_s)
        return None if answer is None else read_lease(answer)

    def _read(self, scope: str, deadline: Deadline) -> LeaseState | None:
        """The Lease; asked for again until the deadline, since reading twice harms nothing."""
        while True:
            try:
                found = self._server.read(f"{self._path}/{self._name(scope)}", _left(deadline))
            except CoordinationUnreachable:
                if not deadline.pause():
                    raise
            else:
                return None if found is None else read_lease(found)


def _left(deadline: Deadline) -> float:
    return max(deadline.left_s, _SHORTEST_CALL_S)
