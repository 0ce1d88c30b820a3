"""Leadership on Kubernetes: a Lease for each scope, in one namespace, has its term (`coordination.observed`).

Each write carries the version of the Lease that was read, so the API server refuses all but the first of those who
have read the same. The times in the Lease are for people.
"""

from __future__ import annotations

import random
from typing import ClassVar

from grete.clock import Clock, Deadline, SystemClock
from grete.coordination.base import Leadership
from grete.coordination.cells import Cells
from grete.coordination.factory import CoordinationContext
from grete.coordination.kubernetes.access import find_access
from grete.coordination.kubernetes.api_server import ApiServer, Document
from grete.coordination.kubernetes.cells import KubernetesCells
from grete.coordination.kubernetes.lease import LeaseState, changed, lease_name, read_lease
from grete.coordination.observed import Decide, ObservedElection, Term, TermRegister
from grete.errors import CoordinationUnreachable, LeadershipLost

_PAUSES_S = (0.02, 0.5)
_SHORTEST_CALL_S = 0.05


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


class KubernetesCoordination(ObservedElection):
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
        super().__init__(Leases(server, namespace, prefix, ttl_s), clock, ttl_s=ttl_s)


class Leases(TermRegister):
    """The terms of scopes, each in a Lease.

    Its calls raise CoordinationError where the API server refuses us, or a Lease is not grete's.
    """

    UNANSWERED = CoordinationUnreachable

    def __init__(self, server: ApiServer, namespace: str, prefix: str, ttl_s: float) -> None:
        self._server = server
        self._ttl_s = ttl_s
        self._timeout_s = ttl_s / 6
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._prefix = prefix
        self._written: dict[str, LeaseState] = {}
        """What was last written for each scope, so that a renewal is one request."""

    def remove(self, leadership: Leadership) -> None:
        """See TermRegister. The Lease and those of the cells go.

        Raises:
            CoordinationUnreachable: the API server did not answer in time.
            CoordinationError: it does not let us delete.
        """
        scope = leadership.scope
        deadline = Deadline(SystemClock(), self._ttl_s, pauses_s=_PAUSES_S)
        while True:
            lease = self._read(scope, deadline)
            if lease is None or not lease.term.is_held_by(leadership):
                raise LeadershipLost(f"{scope} is led by another process: it is not forgotten")
            metadata = lease.document["metadata"]
            version = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            if self._server.remove(f"{self._path}/{self._name(scope)}", version, _left(deadline)):
                break
        self._written.pop(scope, None)
        self.cells(scope).clear()

    def read(self, scope: str, *, is_settled: bool = False) -> Term | None:
        """See TermRegister."""
        lease = self._read(scope, Deadline(SystemClock(), self._timeout_s, pauses_s=_PAUSES_S))
        return None if lease is None else lease.term

    def cells(self, scope: str) -> Cells:
        """See Coordination."""
        return KubernetesCells(self._server, self._path, self._prefix, scope, timeout_s=self._timeout_s)

    def close(self) -> None:
        """See Coordination."""
        self._server.close()

    def _name(self, scope: str) -> str:
        return lease_name(self._prefix, scope)

    def _last_written(self, mine: Leadership | None) -> LeaseState | None:
        lease = None if mine is None else self._written.get(mine.scope)
        return lease if lease is not None and mine is not None and lease.term.is_held_by(mine) else None

    def change(
        self, scope: str, decide: Decide, timeout_s: float, mine: Leadership | None = None
    ) -> Term | None:
        """See TermRegister."""
        deadline = Deadline(SystemClock(), timeout_s, pauses_s=_PAUSES_S, spread=random.random)
        before = self._last_written(mine) or self._read(scope, deadline)
        while True:
            known = None if before is None else before.term
            wanted = decide(known)
            if wanted is None:
                return known
            document = changed(before, wanted, self._name(scope), scope, self._ttl_s)
            try:
                written = self._write(scope, before, document, _left(deadline))
            except CoordinationUnreachable:
                if not deadline.pause():
                    raise
            else:
                if written is not None:
                    self._written[scope] = written
                    return written.term
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
