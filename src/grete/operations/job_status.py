"""How a job stands, in one row: what `grete status` prints and the pages show."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from grete.clock import SystemClock
from grete.config.choices import LauncherChoice
from grete.config.settings import Settings
from grete.coordination.base import Holder
from grete.coordinator.public_address import PublicAddress
from grete.errors import GreteError, JobNotFound
from grete.metadata.history import rests_in_words
from grete.metadata.job_state import JobState, read_origin
from grete.metadata.quarantine import SHOWN
from grete.model.fence import processors_scope
from grete.model.ids import ContainerId, JobId
from grete.operations.job_handle import JobHandle, open_job

UNKNOWN_LAG: dict[str, Any] = {"total": None, "tasks": {}, "partitions": [], "missing": []}
_ANSWER_S = 2.0


class JobLook(threading.Thread):
    """Looks at one job. `row` is what is known of it so far, `failure` why the rest is not."""

    def __init__(self, job: JobId, settings: Settings | None = None) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._settings = settings
        self.row: dict[str, Any] | None = None
        self.failure: GreteError | None = None
        self.start()

    def run(self) -> None:
        """All but the lag first."""
        try:
            with open_job(self._job, self._settings) as handle:
                self.row = standing_row(handle)
                lag = handle.lag().document()
                figures = counted_by_containers(handle) if handle.settings.job.is_pipeline else {}
                self.row = {**self.row, **figures, "behind": lag["total"], "lag": lag}
        except GreteError as error:
            self.failure = error

    def row_at(self, at_s: float, no_answer: str) -> dict[str, Any]:
        """The job's row, with what is missing at that time on the monotonic clock named in its message."""
        self.join(max(0.0, at_s - time.monotonic()))
        failure = self.failure
        if self.row is not None:
            missing = f"the lag is not known: {failure or no_answer}" if self.is_alive() or failure else ""
            return {**self.row, "message": "; ".join(filter(None, (self.row["message"], missing)))}
        if isinstance(failure, JobNotFound):
            return empty_row(self._job, "never ran", "no submit of it has succeeded")
        is_there = failure is None or failure.may_pass
        return empty_row(self._job, "unreachable" if is_there else "unreadable", str(failure or no_answer))


def empty_row(job: JobId, state: str, message: str) -> dict[str, Any]:
    """The row of a job of which nothing else is known."""
    unknown = (
        "behind",
        "run_by",
        "silent_s",
        "url",
        "public_url",
        "token_file",
        "run_id",
        "epoch",
        "processors",
    )
    return {
        "job": job.shown,
        "state": state,
        "tasks": None,
        "lag": UNKNOWN_LAG,
        **dict.fromkeys(unknown),
        "hosts": {},
        "quarantined": [],
        "quarantined_count": 0,
        "on_their_own": [],
        "resting": {},
        "spark": None,
        "expectations": None,
        "message": message,
    }


def counted_by_containers(handle: JobHandle) -> dict[str, Any]:
    """`spark` and `expectations` of a running job's row, from its coordinator; nothing where that does not answer."""
    state = handle.state()
    if state is None or state.state != "running" or not state.url:
        return {}
    from grete.http_client import JobCoordinatorClient  # urllib3, where it is needed

    try:
        token = Path(state.read_token_file or state.token_file)
        with closing(JobCoordinatorClient(state.url, token, timeout_s=_ANSWER_S)) as client:
            containers = client.get("/api/v1/job", patience_s=0)["containers"]
    except (GreteError, OSError, KeyError):  # another user's, another machine's, or about to end
        return {}
    spark = {id_: one.get("spark") for id_, one in containers.items()}
    return {"spark": spark, "expectations": _summed(containers)}


def _summed(containers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """What was checked and what failed of each expectation, over all containers."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one in containers.values():
        for name, counted in one.get("expectations", {}).items():
            found[name].update(counted)
    return {name: dict(counted) for name, counted in sorted(found.items())}


def _running_alone(handle: JobHandle) -> list[ContainerId]:
    """The containers of this machine that go on without a coordinator."""
    from grete.operations.orphans import orphans, running_here

    return running_here(orphans(handle))


def standing_row(handle: JobHandle) -> dict[str, Any]:
    """All but the lag, which is asked of other systems."""
    state, holder = _standing(handle)
    running, silent_s = holder is not None, _silent_s(handle, holder)
    processors = _processors(handle) if state is not None and state.state == "running" else None
    recorded = "never ran" if state is None else state.state
    if recorded == "running":  # or its coordinator ended without writing a terminal state
        recorded = ((state and state.standing) or recorded) if running else "died"
    alone = _running_alone(handle) if recorded == "died" else []
    resting = handle.rests() if running else {}
    said = [
        _processors_in_words(processors, is_led=running),
        rests_in_words(resting, len(set(handle.assignments().values()))) if resting else "",
        state.message if state else "",
        _clone_in_words(handle),
    ]
    quarantined = handle.quarantined()
    public = None if holder is None else PublicAddress.of(handle.settings.coordinator, holder.host)
    return {
        "job": handle.job.shown,
        "state": recorded,
        "tasks": len(handle.active_tasks()),
        "behind": None,
        "lag": UNKNOWN_LAG,
        "run_by": None if holder is None else str(holder) + _silence(silent_s),
        "silent_s": silent_s,
        "url": state.url if state is not None and running else None,
        "public_url": None if public is None else public.url,
        "token_file": (state.read_token_file or state.token_file) if state is not None and running else None,
        "run_id": None if state is None else state.run_id,
        "epoch": None if state is None else state.epoch,
        "hosts": handle.localities(),
        "quarantined": [str(one) for one in quarantined[:SHOWN]],
        "quarantined_count": len(quarantined),
        "on_their_own": alone,
        "processors": processors,
        "resting": resting,
        "spark": None,
        "expectations": None,
        "message": "; ".join(text for text in said if text),
    }


def _processors(handle: JobHandle) -> list[str] | None:
    """The ids of the processors that gave notice within the lease; None of a job that has another launcher."""
    if handle.settings.job.launcher != LauncherChoice.PROCESSORS:
        return None
    return sorted(one.id for one in handle.election.heard_of(processors_scope(handle.job)))


def _clone_in_words(handle: JobHandle) -> str:
    """What a job has to do with another version of itself; empty of one that has none."""
    job = handle.settings.job
    if job.succeeded_by:
        return f"{job.succeeded_by} goes on where it ended"
    if job.promoted_over:
        return f"it writes the streams of {job.promoted_over}"
    origin = read_origin(handle.stream)
    return "" if origin is None else f"a clone of {origin.of}"


def _processors_in_words(processors: list[str] | None, *, is_led: bool) -> str:
    """An empty text where all is well: processors live, and one of them leads."""
    if processors is None or (processors and is_led):
        return ""
    if is_led:
        return "no processor was heard of within the lease"
    if processors:
        return f"{len(processors)} of its processors live, and none leads yet"
    return "no processor lives; it goes on when one starts"


def _silent_s(handle: JobHandle, holder: Holder | None) -> int | None:
    """For how long nothing was heard of the coordinator, when that is more than its lease; by its clock and ours."""

    if holder is None or holder.heard_ms is None:
        return None
    silent_s = SystemClock().wall_ms() / 1000 - holder.heard_ms / 1000
    return round(silent_s) if silent_s > handle.settings.coordinator.lease_ttl_s else None


def _silence(silent_s: int | None) -> str:
    return "" if silent_s is None else f", not heard of for {silent_s} s: dead, cut off, or clocks differ"


def _standing(handle: JobHandle) -> tuple[JobState | None, Holder | None]:
    """The recorded state and who leads, looked at again if something was written in between."""
    state, holder = handle.state(), handle.election.holder()
    if holder is not None or state is None or state.state != "running":
        return state, holder
    again = handle.state()  # the end is recorded before the leadership is released
    return (state, None) if again == state else (again, handle.election.holder())
