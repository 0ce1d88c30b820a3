"""grete planning stories: the planner and the records of its coordinator stream, as a coordinator uses them."""

from __future__ import annotations

from grete.clock import SystemClock
from grete.config.settings import Settings
from grete.coordinator.assignment_records import assignment_records
from grete.coordinator.job_model import Remembered, calculate
from grete.errors import GreteError
from grete.keyed_log.memory import MemoryKeyedLog
from grete.metadata.assignments import ChangelogMapping, TaskAssignments
from grete.metadata.coordinator_stream import CoordinatorStream
from grete.metadata.locality import LocalityManager
from grete.model.ids import ContainerId, SystemStream
from grete.model.messages import SET_TASK_PARTITION
from grete.wire import java_json, job_coordinator_metadata, job_model_json
from grete_workbench.plans.compare import Answer
from grete_workbench.plans.stories import Start, Story


def plan(story: Story) -> list[Answer]:
    """grete's answer to each start."""
    clock = SystemClock()
    stream = CoordinatorStream(MemoryKeyedLog(clock), clock, source="fuzz")
    return [_answer(stream, start) for start in story.starts]


def _answer(stream: CoordinatorStream, start: Start) -> Answer:
    for container, host in start.hosts.items():
        LocalityManager(stream).write_locality(ContainerId(container), host)
    assignments, mapping = TaskAssignments(stream), ChangelogMapping(stream)
    remembered = Remembered(
        assignments.read(),
        mapping.read(),
        assignments.ssps(),
        assignments.modes(),
        LocalityManager(stream).read_locality(),
    )
    partitions = {SystemStream.parse(name): count for name, count in start.streams.items()}
    try:
        calculated = calculate(Settings.of(start.config), partitions, remembered)
    except GreteError as error:
        return Answer(refused=str(error))
    mapping.write(calculated.changelog)
    assignments.write(assignment_records(calculated.model, remembered))
    tasks: dict[str, list[str]] = {}
    for key, names in stream.values(SET_TASK_PARTITION).items():
        ssp = java_json.loads(key.encode())
        tasks.setdefault(f"{ssp['system']}.{ssp['stream']}.{ssp['partition']}", []).extend(
            java_json.loads(names.encode())
        )
    return Answer(
        model=job_model_json.encode(calculated.model).decode(),
        id=job_coordinator_metadata.job_model_id(calculated.model),
        containers={str(task): str(container) for task, container in assignments.read().items()},
        modes={str(task): mode.value for task, mode in assignments.modes().items()},
        tasks=tasks,
        changelog={str(task): partition for task, partition in mapping.read().items()},
    )
