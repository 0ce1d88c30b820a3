"""The job's state, what it is a clone of, and requests to it, as grete's own records in the coordinator stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from grete.failpoints import failpoint
from grete.metadata.coordinator_stream import CoordinatorStream

STATE = "grete-job-state"
REQUEST = "grete-request"
CLONE = "grete-clone"
AT_WORK = "grete-config-at-work"
"""With which configuration all containers were last at work, for a coordinator that takes over (decision 59)."""
Ends = Mapping[str, Mapping[int, int]]
"""The upcoming offset of each partition of streams."""
_RUNNING = "running"
_LARGEST_EPOCH = 1 << 40
"""Elections do not reach it: a record above it is a foreign one."""


@dataclass(frozen=True, slots=True)
class JobState:
    """`state` is running, finished, stopped or failed; terminal ones are written before leadership is released.

    `token_file` holds the token of the job's containers, which look here for the coordinator; `read_token_file` the
    one for readers. Coordinators of earlier versions have one for both, in `token_file`.
    """

    state: str
    run_id: str
    epoch: int
    url: str = ""
    token_file: str = ""
    message: str = ""
    read_token_file: str = ""
    standing: str = ""
    """Of a running one: `starting Spark`, `restarting` or `running`."""

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state != _RUNNING


def write_state(stream: CoordinatorStream, state: JobState) -> None:
    """Make it the job's state. Durable on return, refused when a newer leader exists.

    The end of a job is written on a full disk as well.
    """
    values = {name: str(getattr(state, name)) for name in JobState.__slots__}
    stream.append([stream.entry(STATE, "job", values)], urgent=state.is_terminal)
    failpoint("state.written")


def read_state(stream: CoordinatorStream) -> JobState | None:
    """The job's state, None when it never ran or a foreign record is there under our name."""
    message = stream.messages(STATE).get("job")
    if message is None or message.values is None:
        return None
    values = {name: message.values.get(name, "") for name in JobState.__slots__}
    try:
        return JobState(**{**values, "epoch": int(values["epoch"] or 0)})  # type: ignore[arg-type] # all str but epoch
    except ValueError:
        return None


def recorded_epoch(stream: CoordinatorStream) -> int:
    """The epoch of the leader that wrote the job's state last, to be elected above; 0 when it never ran."""
    state = read_state(stream)
    return state.epoch if state is not None and 0 <= state.epoch < _LARGEST_EPOCH else 0


@dataclass(frozen=True, slots=True)
class StopRequest:
    """An operator asked the incarnation with this epoch to stop within `deadline_s`."""

    epoch: int
    deadline_s: float
    reason: str


def write_stop_request(stream: CoordinatorStream, request: StopRequest) -> None:
    """Ask the running coordinator to stop, on a full disk too."""
    values = {"epoch": str(request.epoch), "deadline-s": str(request.deadline_s), "reason": request.reason}
    stream.append([stream.entry(REQUEST, "stop", values)], urgent=True)


def read_stop_request(stream: CoordinatorStream) -> StopRequest | None:
    """The last stop request; the caller compares its epoch with its own."""
    message = stream.messages(REQUEST).get("stop")
    if message is None or message.values is None:
        return None
    try:
        deadline_s = float(message.values["deadline-s"])
        if not 0 <= deadline_s < float("inf"):
            return None
        return StopRequest(int(message.values["epoch"]), deadline_s, message.values.get("reason", ""))
    except (KeyError, ValueError):
        return None  # a foreign record under our name is ignored


class RequestKind(StrEnum):
    """Of a coordinator, beside a stop: to consume what is there and end; to let another coordinator lead."""

    DRAIN = "drain"
    STEP_DOWN = "step-down"


@dataclass(frozen=True, slots=True)
class Request:
    """An operator asked this of the incarnation with this epoch, and of no other."""

    kind: RequestKind
    epoch: int
    reason: str


def write_request(stream: CoordinatorStream, request: Request) -> None:
    """Ask the running coordinator."""
    values = {"epoch": str(request.epoch), "reason": request.reason}
    stream.append([stream.entry(REQUEST, request.kind, values)])


def read_request(stream: CoordinatorStream, kind: RequestKind) -> Request | None:
    """The last request of this kind; the caller compares its epoch with its own."""
    message = stream.messages(REQUEST).get(kind)
    if message is None or message.values is None:
        return None
    try:
        return Request(kind, int(message.values["epoch"]), message.values.get("reason", ""))
    except (KeyError, ValueError):
        return None  # a foreign record under our name is ignored


@dataclass(frozen=True, slots=True)
class CloneOrigin:
    """The original's name, and where each of its outputs ended before and after its checkpoints were read with which
    the clone began: the same, unless it ran.
    """

    of: str
    ends: Ends = field(default_factory=dict)
    ends_after: Ends = field(default_factory=dict)


def write_origin(stream: CoordinatorStream, origin: CloneOrigin) -> None:
    """Say that the clone is made. Durable on return."""
    ends = {"ends": json.dumps(origin.ends), "ends-after": json.dumps(origin.ends_after)}
    stream.append([stream.entry(CLONE, CLONE, {"of": origin.of, **ends})])


def read_origin(stream: CoordinatorStream) -> CloneOrigin | None:
    """None of a job that is no clone, or was not made to its end."""
    message = stream.messages(CLONE).get(CLONE)
    if message is None or message.values is None:
        return None
    ends, after = (_ends(message.values.get(name, "{}")) for name in ("ends", "ends-after"))
    return CloneOrigin(message.values.get("of", ""), ends, after)


def _ends(text: str) -> Ends:
    try:
        return {
            str(name): {int(partition): int(end) for partition, end in found.items()}
            for name, found in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}  # what a clone is compared by is more then, and nothing is lost
