"""How each container of a job stands: what `grete container list` prints and the pages show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grete.launch.processes import parse_name
from grete.metadata.history import Ending
from grete.metadata.job_state import JobState
from grete.model.ids import ContainerId
from grete.operations.job_handle import JobHandle


def container_rows(handle: JobHandle) -> list[dict[str, Any]]:
    """A row for each container of the job model, by id."""
    assignments, hosts, launches = handle.assignments(), handle.localities(), handle.launches()
    running, rests, endings = handle.election.holder() is not None, handle.rests(), handle.endings()
    job = None if running else handle.state()
    rows: list[dict[str, Any]] = []
    for id_ in sorted(set(assignments.values())):
        launch = launches.get(id_)
        tasks = sorted(task for task, owner in assignments.items() if owner == id_)
        how = Ending("running" if running else "on its own", "")
        if launch is None:
            how = _at_rest(id_, rests, endings, job)
        rows.append(
            {
                "container": id_,
                "state": how.state,
                "host": hosts.get(id_),
                "epoch": None if launch is None else launch.epoch,
                "handle": None if launch is None else launch.handle,
                "pid": None if launch is None else _process_id(launch.handle),
                "tasks": tasks,
                "message": how.message,
            }
        )
    return rows


def _process_id(handle: str) -> int | None:
    """None where a launcher's handle is of no process of its own, as of a thread."""
    name = parse_name(handle)
    return None if name is None else name.pid


def _at_rest(
    id_: ContainerId,
    rests: Mapping[ContainerId, str],
    endings: Mapping[ContainerId, Ending],
    job: JobState | None,
) -> Ending:
    """How a container stands that does not run; `job` is the recorded state of a job that does not run either."""
    known = endings.get(id_)
    if id_ in rests:
        return Ending(rests[id_], "" if known is None else known.message)
    if known is not None:
        return known
    if job is None or not job.is_terminal:
        return Ending("not started", "")
    return Ending("ended with the job", job.message)
