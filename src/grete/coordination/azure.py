"""Leadership by leases of blobs in Azure Storage, one blob a scope.

The lease is the ownership: the service itself ends it when it was not renewed for the TTL, so a contender compares no
clocks and counts no renewals. Its id is the holder's incarnation. The blob holds the epoch and the holder, and is
written under the new lease and on the ETag that was read, so epochs grow as long as there is the blob; one that was
deleted is made good by `epoch_floor`. An answer may be lost: acquiring again under the same id extends the lease, and
a blob says who wrote it.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import orjson

from grete.azure.blobs import Acquired, BlobChanged, Blobs
from grete.azure.names import escaped
from grete.azure.storage import AzureStorage
from grete.azure.tables import Table
from grete.clock import Clock
from grete.config.settings.azure import AzureAccount, lease_problem
from grete.coordination.azure_cells import AzureCells
from grete.coordination.base import Coordination, Holder, Leadership, Look
from grete.coordination.cells import Cells
from grete.coordination.factory import CoordinationContext
from grete.coordination.patience import Patience
from grete.errors import (
    ConfigError,
    GreteError,
    HeldByOther,
    LeadershipLost,
    LogCorrupted,
    LogError,
    LogUnreachable,
)
from grete.failpoints import failpoint

_CALLS_IN_TTL = 6
_ATTEMPTS = 3
_EXPIRED = "expired"
_OVER = frozenset(("available", "broken"))
_log = logging.getLogger("grete.coordinator")


@dataclass(frozen=True, slots=True)
class _AzureRow:
    """`holder` is None once the leadership was released."""

    epoch: int
    holder: Holder | None

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    def is_held_by(self, incarnation: str) -> bool:
        return self.holder is not None and self.holder.incarnation == incarnation


def open_coordination(context: CoordinationContext) -> AzureCoordination:
    """In the account of `azure.storage.connect`.

    Raises:
        ConfigError: the key is missing or wrong, or no lease lasts for the TTL.
    """
    settings = context.settings.azure
    return AzureCoordination(
        settings.account,
        context.clock,
        ttl_s=context.ttl_s,
        container=settings.container,
        table=settings.cell_table,
    )


def blob_name(scope: str) -> str:
    """The blob of a scope: readable, legal, and never that of another scope."""
    return "/".join(["leadership", *(escaped(part) or "=" for part in scope.split("/"))])


class AzureCoordination(Coordination):
    """Leader election in the blobs of a container."""

    LOOKS_IN_TTL: ClassVar[float] = 4
    """A lease ends within a TTL of its holder's death, and a quarter of one later this is seen."""

    def __init__(
        self,
        account: AzureAccount,
        clock: Clock,
        *,
        ttl_s: float = 15.0,
        container: str = "grete",
        table: str = "grete",
    ) -> None:
        """A request takes a sixth of a TTL at most, and is made a second time where that is safe.

        Raises:
            ConfigError: no lease lasts for `ttl_s`.
        """
        if lease_problem(ttl_s):
            raise ConfigError(lease_problem(ttl_s))
        self._lease_s = math.ceil(ttl_s)
        self._storage = AzureStorage(account, timeout_s=ttl_s / _CALLS_IN_TTL)
        self._blobs = Blobs(self._storage, container)
        self._table = Table(self._storage, table)
        self._clock = clock
        self._patience = Patience(clock, ttl_s=ttl_s)

    @property
    def requests(self) -> int:
        """How many this client has made."""
        return self._storage.requests

    def campaign(self, scope: str, *, take_over: bool = False, epoch_floor: int = 0) -> Leadership:
        """See Coordination. Whether the holder lives is known after a TTL: its lease is still held, or is over.

        Raises:
            LogError: the service did not answer, or refused.
        """
        asked_s = self._clock.monotonic_s()
        me = Holder(socket.gethostname(), os.getpid(), uuid.uuid4().hex, self._clock.wall_ms())
        if not self._has_leased(scope, me.incarnation, take_over):
            raise self._held_by_other(scope)
        failpoint("azure.leased")
        try:
            epoch = self._elected(scope, me, epoch_floor)
        except GreteError:
            with suppress(GreteError):  # else it ends by itself
                self._blobs.release(blob_name(scope), _lease_id(me.incarnation))
            raise
        failpoint("azure.elected")
        return Leadership(scope, epoch, me.incarnation, self._patience.until_s(asked_s))

    def _has_leased(self, scope: str, incarnation: str, take_over: bool) -> bool:
        name, lease = blob_name(scope), _lease_id(incarnation)
        for _ in range(_ATTEMPTS):
            try:
                outcome = self._blobs.acquire(name, lease, self._lease_s)
            except LogUnreachable:  # if only the answer was lost, this extends it
                outcome = self._blobs.acquire(name, lease, self._lease_s)
            if outcome is Acquired.YES:
                return True
            if outcome is Acquired.NO_BLOB:
                with suppress(BlobChanged):  # another contender was first
                    self._blobs.write(name, _AzureRow(0, None).encode(), etag=None)
            elif take_over:
                self._blobs.break_lease(name)
            else:
                return False
        return False

    def _elected(self, scope: str, me: Holder, epoch_floor: int) -> int:
        """Write the new holder under its lease; returns its epoch."""
        name, lease = blob_name(scope), _lease_id(me.incarnation)
        lost: LogUnreachable | None = None
        for _ in range(_ATTEMPTS):
            found = self._blobs.read(name)
            if found is None:
                break
            row = _decode(name, found.data)
            if row.is_held_by(me.incarnation):  # our own attempt, whose answer did not come
                return row.epoch
            epoch = 1 + max(row.epoch, epoch_floor)
            try:
                self._blobs.write(name, _AzureRow(epoch, me).encode(), etag=found.etag, lease=lease)
            except BlobChanged:
                continue  # by that attempt, which arrived late, or by one who took over
            except LogUnreachable as error:
                lost = error
                continue
            return epoch
        raise lost or self._held_by_other(scope)

    def _held_by_other(self, scope: str) -> HeldByOther:
        row = self._row(scope)
        if row is None or row.holder is None:
            return HeldByOther(scope, "a process that is just being elected", may_be_dead=True)
        lives = self._patience.is_over(scope, row.holder.incarnation, 0) or self._patience.has_moved(scope)
        return HeldByOther(scope, row.holder.described(), may_be_dead=not lives)

    def renew(self, leadership: Leadership) -> Leadership | None:
        """See Coordination. While there is no answer, the leadership comes back as it is, for a TTL at most."""
        asked_s = self._clock.monotonic_s()
        try:
            is_ours = self._blobs.renew(blob_name(leadership.scope), _lease_id(leadership.incarnation))
        except LogError as error:
            _log.info("the leadership of %s was not renewed: %s", leadership.scope, error)
            return self._patience.unanswered(leadership)
        return replace(leadership, valid_until_s=self._patience.until_s(asked_s)) if is_ours else None

    def release(self, leadership: Leadership) -> None:
        """See Coordination.

        Raises:
            LogError: the service did not answer in time; the leadership expires by itself.
        """
        name, lease = blob_name(leadership.scope), _lease_id(leadership.incarnation)
        found = self._blobs.read(name)
        if found is None or not _decode(name, found.data).is_held_by(leadership.incarnation):
            return
        nobody = _AzureRow(leadership.epoch, None).encode()
        with suppress(BlobChanged):
            try:
                self._blobs.write(name, nobody, etag=found.etag, lease=lease)
            except (
                BlobChanged
            ):  # the lease has expired; unless another one was elected, the blob is as it was
                self._blobs.write(name, nobody, etag=found.etag)
        self._blobs.release(name, lease)

    def forget(self, leadership: Leadership) -> None:
        """See Coordination. The blob and the rows of the cells go.

        Raises:
            LogError: the service did not answer in time, or refused.
        """
        name, lease = blob_name(leadership.scope), _lease_id(leadership.incarnation)
        found = self._blobs.read(name)
        if found is None or not _decode(name, found.data).is_held_by(leadership.incarnation):
            raise LeadershipLost(f"{leadership.scope} is led by another process: it is not forgotten")
        try:
            self._blobs.delete(name, etag=found.etag, lease=lease)
        except BlobChanged as error:
            raise LeadershipLost(f"{leadership.scope} was taken over: it is not forgotten") from error
        self.cells(leadership.scope).clear()

    def holder(self, scope: str) -> Holder | None:
        """See Coordination. One whose lease has expired is returned until another one leads: it may only hang."""
        row = self._row(scope)
        return None if row is None else row.holder

    def leading_epoch(self, scope: str) -> int | None:
        """See Coordination; of a holder whose lease has expired too, as in `holder`."""
        return self.look(scope).epoch

    def is_silent(self, scope: str) -> bool:
        """See Coordination. The service knows: its lease has expired."""
        return self.look(scope).is_silent

    def look(self, scope: str) -> Look:
        """See Coordination."""
        row, lease = self._leased(scope)
        if row is None or row.holder is None:
            return Look(None, False)
        return Look(row.epoch, lease == _EXPIRED)

    def _row(self, scope: str) -> _AzureRow | None:
        return self._leased(scope)[0]

    def _leased(self, scope: str) -> tuple[_AzureRow | None, str]:
        """The row and the state of its lease; without a holder where the lease was broken: it will not be renewed."""
        found = self._blobs.read(blob_name(scope))
        if found is None:
            return None, ""
        row = _decode(blob_name(scope), found.data)
        return (replace(row, holder=None) if found.lease in _OVER else row), found.lease

    def cells(self, scope: str) -> Cells:
        """See Coordination. Rows of one table, and blobs where they are large."""
        return AzureCells(self._table, self._blobs, scope)

    def close(self) -> None:
        """See Coordination."""
        self._storage.close()


def _lease_id(incarnation: str) -> str:
    return str(uuid.UUID(hex=incarnation))


def _decode(name: str, data: bytes) -> _AzureRow:
    try:
        document = orjson.loads(data)
        holder = document["holder"]
        return _AzureRow(int(document["epoch"]), None if holder is None else Holder(**holder))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise LogCorrupted(f"the blob {name} holds no leadership; delete it to elect again") from error
