"""Another number of tasks for each partition, at the offsets where the tasks before have ended.

Each bucket of keys is read at its own pace, so before the factor changes the tasks of a partition are run to the
highest offset of all. Then each record was processed once by the tasks before, or is by those after.
"""

from __future__ import annotations

from grete.config.key_tables.job import ELASTICITY, STARTPOINTS
from grete.errors import JobError
from grete.model.ids import JobId
from grete.model.startpoint import Startpoint, StartpointKind
from grete.operations.configuration import check_change, set_config
from grete.operations.job_handle import JobHandle, open_job
from grete.operations.meeting import Meeting, Run, bring_together, meeting
from grete.operations.orphans import standing_still
from grete.operations.startpoints import Where, write_startpoints


def set_elasticity(job: JobId, factor: int, run: Run) -> Meeting:
    """Run the job to where its tasks stand at the same offsets, and let other tasks go on from there. Durable.

    Whatever ends it in between, no record is left out or processed twice: it may be asked for again.

    Raises:
        JobError: the job is running, has stores or no checkpoints, or does not come there.
        ConfigError: see `set_config`.
    """
    with open_job(job) as handle:
        _refuse_state(handle)
        check_change(handle, {ELASTICITY.name: str(factor)})
    bring_together([job], run)
    with open_job(job) as handle, standing_still(handle):
        found = meeting(handle)
        if found.behind:
            raise JobError(f"{job.shown}: tasks of a partition do not stand at the same offsets; ask again")
        where: dict[Where, Startpoint] = {
            (ssp, None): Startpoint(StartpointKind.SPECIFIC, 0, str(offset))
            for ssp, offset in found.at.items()
        }
        write_startpoints(handle, where, {}, live=True, event="elasticity", factor=str(factor))
        # the old tasks, if they come back, start where they stand; the new ones never without the startpoints
        set_config(handle, {ELASTICITY.name: str(factor)}, reason=f"{factor} tasks for each partition")
    return found


def _refuse_state(handle: JobHandle) -> None:
    settings, shown = handle.settings, handle.job.shown
    if settings.is_stateful:
        raise JobError(
            f"{shown} has the stores {', '.join(settings.store_names)}, whose entries belong to the tasks that there "
            f"are, and a store's key need not be a message's: let a second version read everything anew and take its "
            f"place: grete job clone --job {shown} --as NAME --to-file FILE, {ELASTICITY.name} in FILE, then grete "
            f"job promote. Or begin with the factor that you will need, and change the number of containers"
        )
    if not settings.job.is_startpoint_enabled:
        raise JobError(f"{STARTPOINTS.name}=false: the tasks after could not be told where to start")
