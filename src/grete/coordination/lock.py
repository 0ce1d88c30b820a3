"""A named lock between processes, on any service that elects leaders: its holder leads the scope of the lock."""

from __future__ import annotations

from grete.clock import Deadline
from grete.coordination.base import Coordination, Leadership
from grete.errors import HeldByOther


class DistributedLock:
    """A lock `name` (Samza's DistributedLock). Used by one thread at a time.

        lock = DistributedLock(coordination, "create-streams")
        if lock.lock(Deadline(clock, 30.0)):
            ...             # under lock.held.epoch, until lock.held.valid_until_s
            lock.unlock()

    As every lock with a TTL it does not exclude by itself a process that was paused: a resource that must not be
    written by two checks the epoch, which grows with every holder.
    """

    def __init__(self, coordination: Coordination, name: str) -> None:
        self._coordination = coordination
        self._scope = f"lock/{name}"
        self.held: Leadership | None = None
        """Proof of holding it, with the fencing token and how long it may be acted on; None without it."""

    def lock(self, deadline: Deadline) -> bool:
        """Take the lock; False when another one holds it to the deadline. Held already, it is renewed.

        A holder that died is succeeded once it is known to be dead, which may take a TTL.
        """
        if self.renew():
            return True
        while True:
            try:
                self.held = self._coordination.campaign(self._scope)
            except HeldByOther:
                if not deadline.pause():
                    return False
            else:
                return True

    def renew(self) -> bool:
        """Extend; False when it is not held (any more). To be called every third of the TTL."""
        if self.held is not None:
            self.held = self._coordination.renew(self.held)
        return self.held is not None

    def unlock(self) -> None:
        """Give the lock back; nothing when it is not held (any more)."""
        held, self.held = self.held, None
        if held is not None:
            self._coordination.release(held)
