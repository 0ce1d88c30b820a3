"""Containers that a cluster manager runs: the launcher of a coordinator that was deployed (`grete.launch.base`)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grete.clock import Clock, Deadline
from grete.deploy.managed_containers import ManagedContainer, ManagedContainers
from grete.errors import GreteError
from grete.launch.base import ContainerExit, ContainerStart, Launcher
from grete.launch.exits import exit_of
from grete.launch.factory import LastWords, no_words
from grete.launch.watching import WatchingThread
from grete.model.fence import leadership_of
from grete.model.ids import ContainerId

_log = logging.getLogger("grete.coordinator")
_KILLED = -9
_SECONDS = 1
"""What one has for its end that is killed."""
_SILENT_S = 10.0
"""One that is there for longer than its end may take is on a host of which nobody hears."""
_PLACED_WITHIN_S = 30.0
"""So long a container waits for the host that an operator has named."""
_AGAIN_S, _WATCH_S = 1.0, 30.0
_END_S = 30.0


@dataclass(slots=True)
class _Launched:
    """An incarnation that is to run. Without a `uid` the manager has not answered that it is made."""

    start: ContainerStart
    name: str
    uid: str = ""
    is_killed: bool = False
    is_sent_away: bool = False
    """Whether somebody else ends it, as one who drains its host."""
    gone_by_s: float | None = None
    """On the monotonic clock; None while nobody ends it."""
    has_begun: bool = False
    """Whether the manager has started its process."""
    said: str = ""
    unplaced_s: float | None = None
    """Since when no host takes it, on the monotonic clock."""

    @property
    def is_pending(self) -> bool:
        """Whether something is still to be asked of the manager."""
        return not self.uid or (self.is_killed and self.gone_by_s is None)


@dataclass(slots=True)
class ManagedLauncher(Launcher):
    """Starts containers from the coordinator's loop and from a thread of its own that watches them.

    While the manager does not answer, nothing is started or ended, and no container is taken for gone: what was
    asked meanwhile is asked of it later. `request_stop` is the coordinator's answer to a heartbeat.
    """

    managed: ManagedContainers
    clock: Clock
    leadership: int
    last_words: LastWords = no_words
    _known: dict[ContainerId, _Launched] = field(default_factory=dict)
    _replaced: list[_Launched] = field(default_factory=list)
    _withdrawn: set[str] = field(default_factory=set)
    _ended: deque[ContainerExit] = field(default_factory=deque)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _watching: WatchingThread = field(init=False)
    _said: str = ""

    def __post_init__(self) -> None:
        self._watching = WatchingThread(self._run, "containers")

    # --- called by the coordinator's loop ---

    def start(self, container: ContainerStart) -> None:
        """See Launcher."""
        with self._lock:
            known = self._known.get(container.container_id)
            if known is not None and known.start.epoch >= container.epoch:
                return
            if known is not None:
                known.is_killed = True
                self._replaced.append(self._known.pop(container.container_id))
            self._known[container.container_id] = _Launched(container, self.managed.name(container))
            self._ask()
        self._begin()

    def request_stop(self, container_id: ContainerId) -> None:
        """See Launcher: the directive that the coordinator gives besides says so."""

    def kill(self, container_id: ContainerId) -> None:
        """See Launcher. Whether it has ended is the manager's to say; one that is not heard of is fenced off."""
        with self._lock:
            known = self._known.get(container_id)
            if known is not None:
                known.is_killed, known.gone_by_s = True, None
                self._ask()

    def exits(self) -> list[ContainerExit]:
        """See Launcher.

        Raises:
            JobError: the thread has ended by an error of its own, so nobody looks at containers any more.
        """
        self._begin()
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def handle(self, container_id: ContainerId) -> str:
        """See Launcher: the name, which has the epoch, and once it is known the uid, which no other of that name has.

        Whoever leads next finds what was under way when we ended.
        """
        known = self._known.get(container_id)
        return "" if known is None else f"{self.managed.kind}/{known.name}/{known.uid}"

    def adopt(self, container: ContainerStart, handle: str) -> bool:
        """See Launcher. Whoever writes into the coordinator stream can claim a handle: the manager has to say so.

        Raises:
            GreteError: it does not answer.
        """
        kind, _, rest = handle.partition("/")
        name, _, uid = rest.partition("/")
        if kind != self.managed.kind or name != self.managed.name(container):
            return False
        there = self.managed.read(name)
        if there is None or there.uid != (uid or there.uid) or there.epoch != container.epoch:
            return False
        with self._lock:
            known = _Launched(container, name, there.uid, has_begun=there.has_begun, said=there.waits_for)
            self._known[container.container_id] = known
        return True

    def awaited(self) -> Mapping[ContainerId, str]:
        """See Launcher. One that is to be killed is not awaited any more."""
        known = self._known.copy()  # whole, though the thread may change it meanwhile
        return {id_: own.said for id_, own in known.items() if not (own.has_begun or own.is_killed)}

    def abandon(self) -> None:
        """See Launcher."""
        self._closed.set()
        with self._lock:
            self._known.clear()
            self._replaced.clear()
        self._ended.clear()

    def close(self) -> None:
        """See Launcher."""
        with self._lock:
            for known in self._known.values():
                known.is_killed, known.gone_by_s = True, None
            self._ask()
        deadline = Deadline(self.clock, _END_S, pauses_s=(0.05, 0.5))
        while (self._known or self._replaced) and not self._watching.has_broken and deadline.pause():
            pass
        self.abandon()

    # --- the thread's ---

    def _begin(self) -> None:
        self._watching.begin()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._look()
        finally:
            self.managed.close()

    def _look(self) -> None:
        """Look once, and wait until there is something new to see or to do."""
        try:
            version, watch_s = self.turn()
            self.managed.watch(version, watch_s)
        except GreteError as error:
            self._say(error)
            self.clock.wait(self._closed, _AGAIN_S)

    def turn(self) -> tuple[str, float]:
        """Ask for what is wanted, and see what became of it; returns the sight's version, and when the next is due.

        Raises:
            GreteError: the manager does not answer, or refuses.
        """
        with self._lock:
            self._ask()
            found, version = self.managed.seen()
            self._judge({one.name: one for one in found})
            self._tidy(found)
            self._said = ""
            return version, self._next_look_s()

    def _say(self, error: GreteError) -> None:
        """The first time of an outage."""
        level = logging.DEBUG if str(error) == self._said else logging.WARNING
        self._said = str(error)
        _log.log(level, "containers cannot be looked at: %s", error)

    def _next_look_s(self) -> float:
        asked = (*self._known.values(), *self._replaced)
        if any(one.is_pending or (one.gone_by_s, one.unplaced_s) != (None, None) for one in asked):
            return _AGAIN_S
        return _WATCH_S

    def _ask(self) -> None:
        """Ask the manager for what is wanted, as far as it answers."""
        for own in (*self._replaced, *self._known.values()):
            if not own.is_pending:
                continue
            try:
                self._make(own) if not own.uid else self._kill(own)
            except GreteError as error:
                if error.may_pass:
                    self._say(error)
                    return
                self._end(own, 1, f"it was not started: {error}")

    def _make(self, own: _Launched) -> None:
        """Make it, unless nobody wants it any more."""
        if own.is_killed:
            self.managed.withdraw(own.name)
            self._withdrawn.add(own.name)
            self._end(own, _KILLED, "killed before it was started")
            return
        own.uid = self.managed.create(own.start)
        if own.uid:
            _log.info("container %s is %s %s", own.start.container_id, self.managed.kind, own.name)

    def _kill(self, own: _Launched) -> None:
        self.managed.remove(own.name, own.uid, _SECONDS)
        own.gone_by_s = self.clock.monotonic_s() + _SECONDS + _SILENT_S

    def _judge(self, found: Mapping[str, ManagedContainer]) -> None:
        for own in (*self._replaced, *self._known.values()):
            if not own.uid:
                continue
            there = found.get(own.name)
            own.has_begun = own.has_begun or (there is not None and there.has_begun)
            if there is None or there.uid != own.uid:
                self._lose(own, _why(own, f"{self.managed.kind} {own.name} was removed, and said nothing"))
            elif there.end is not None:
                self._take_end(own, there)
            elif self._is_overdue(own, there):
                host = there.host or "no host"
                self._lose(own, f"{self.managed.kind} {own.name} does not end: nothing is heard of {host}")
                self.managed.remove(own.name, own.uid, 0)
            elif there.sent_away and own.gone_by_s is None:
                _log.info("container %s goes elsewhere: %s", own.start.container_id, there.sent_away)
                own.is_sent_away = True
                self._kill(own)
            elif self._is_unplaced_for_long(own, there):
                reason = (
                    f"host {own.start.host} does not take it, or is not there; it goes where there is room"
                )
                self._end(own, _KILLED, reason, left=True)
                self.managed.remove(own.name, own.uid, 0)
            else:
                self._tell_why_it_waits(own, there)

    def _take_end(self, own: _Launched, there: ManagedContainer) -> None:
        assert there.end is not None, "it has ended"
        is_left = own.is_sent_away or (there.leaves_within_s is not None and not own.is_killed)
        if there.end.code is None:
            own.is_sent_away = is_left
            self._lose(own, _why(own, there.end.said))
            return
        report = there.end.report
        if report is None:  # one of code 0 is false
            report = self.last_words(own.start.container_id, own.start.epoch)
        end = exit_of(own.start, there.end.code, report, said=there.end.said)
        self._report(own, replace(end, left=True) if is_left else end)

    def _lose(self, own: _Launched, reason: str) -> None:
        """Of one that may still run somewhere. It did not fail, if somebody has sent it away."""
        self._end(own, _KILLED, reason, left=own.is_sent_away, may_live=True)

    def _is_overdue(self, own: _Launched, there: ManagedContainer) -> bool:
        """Whether somebody ends it, and it should have ended."""
        if own.gone_by_s is None:
            if there.leaves_within_s is None:
                return False
            own.is_sent_away = not own.is_killed
            own.gone_by_s = self.clock.monotonic_s() + there.leaves_within_s + _SILENT_S
        return self.clock.monotonic_s() > own.gone_by_s

    def _is_unplaced_for_long(self, own: _Launched, there: ManagedContainer) -> bool:
        """Whether the host that an operator wants has not taken it."""
        if not (own.start.is_host_required and there.is_unplaced):
            return False
        if own.unplaced_s is None:
            own.unplaced_s = self.clock.monotonic_s()
        return self.clock.monotonic_s() > own.unplaced_s + _PLACED_WITHIN_S

    def _end(
        self, own: _Launched, code: int, reason: str, *, left: bool = False, may_live: bool = False
    ) -> None:
        id_, epoch = own.start.container_id, own.start.epoch
        self._report(own, ContainerExit(id_, epoch, code, reason, left=left, may_live=may_live))

    def _report(self, own: _Launched, end: ContainerExit) -> None:
        self._ended.append(end)
        if own in self._replaced:
            self._replaced.remove(own)
        else:
            self._known.pop(own.start.container_id, None)

    def _tidy(self, found: Sequence[ManagedContainer]) -> None:
        """End what is nobody's: started by an earlier leader and not adopted, withdrawn, or followed by another one.

        So of those that have ended the last stays.
        """
        ours = {own.uid for own in (*self._known.values(), *self._replaced)}
        last: dict[ContainerId, int] = {}
        for one in found:
            last[one.container] = max(last.get(one.container, 0), one.epoch)
        for one in found:
            if one.uid in ours or one.leaves_within_s is not None:
                continue
            is_of_another = leadership_of(one.epoch) < self.leadership or one.name in self._withdrawn
            if (is_of_another and one.end is None) or one.epoch < last[one.container]:
                self.managed.remove(one.name, one.uid, _SECONDS)

    def _tell_why_it_waits(self, own: _Launched, there: ManagedContainer) -> None:
        if there.waits_for and there.waits_for != own.said:
            _log.warning(
                "container %s: %s %s waits: %s",
                own.start.container_id,
                self.managed.kind,
                own.name,
                there.waits_for,
            )
        own.said = there.waits_for


def _why(own: _Launched, reason: str) -> str:
    """Of an end that nobody has seen."""
    return exit_of(own.start, _KILLED, None).reason if own.is_killed else reason
