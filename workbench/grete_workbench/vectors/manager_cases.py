"""Stories of the real JobModelManager: successive starts of a coordinator on one stream."""

from __future__ import annotations

import json
from typing import Any

from grete.config.settings import Settings
from grete.coordinator.assignment_records import AssignmentRecord, assignment_records
from grete.coordinator.job_model import Remembered, calculate
from grete.model.ids import ContainerId, SystemStream, SystemStreamPartition, TaskName
from grete.model.job import TaskMode
from grete.wire import coordinator_message, job_coordinator_metadata, job_model_json
from grete_workbench.vectors.registry import Case, checker, result_of, same


def _is_story(case: Case) -> bool:
    steps = case.get("steps")
    return isinstance(steps, list) and all("streams" in step and "result" in step for step in steps)


class _Memory:
    """The assignments as a stream would remember them."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], dict[str, str]] = {}
        self.changelog: dict[TaskName, int] = {}

    def apply(self, records: list[AssignmentRecord]) -> None:
        for message_type, key, values in records:
            if values is None:
                self.values.pop((message_type, key), None)
            else:
                self.values[message_type, key] = dict(values)

    def _of(self, message_type: str, field: str) -> dict[str, str]:
        return {key: values[field] for (kind, key), values in self.values.items() if kind == message_type}

    def remembered(self) -> Remembered:
        ssps: dict[TaskName, list[SystemStreamPartition]] = {}
        for key, names in self._of("set-task-partition-assignment", "taskNames").items():
            ssp = json.loads(key)
            for task in json.loads(names):
                ssps.setdefault(TaskName(task), []).append(
                    SystemStreamPartition(ssp["system"], ssp["stream"], ssp["partition"], ssp["keyBucket"])
                )
        assignment = self._of("set-task-container-assignment", "containerId")
        modes = self._of("set-task-mode-assignment", "taskMode")
        return Remembered(
            {TaskName(task): ContainerId(id_) for task, id_ in assignment.items()},
            self.changelog,
            {task: tuple(found) for task, found in ssps.items()},
            {TaskName(task): TaskMode(mode) for task, mode in modes.items()},
        )


def _streams(text: str) -> dict[SystemStream, int]:
    found = {}
    for part in text.split(","):
        name, _, count = part.rpartition(":")
        found[SystemStream.parse(name)] = int(count)
    return found


@checker("job_model_manager_e2e", knows=lambda case: "op" not in case and _is_story(case))
def check_story(case: Case) -> None:
    """Every start: model, ids, records and changelog mapping."""
    memory = _Memory()
    for number, step in enumerate(case["steps"]):
        _check_step(memory, step, f"step {number}")


def _check_step(memory: _Memory, step: dict[str, Any], name: str) -> None:
    expected, varying = step["result"], step.get("jvm_dependent", [])
    remembered = memory.remembered()
    calculated = result_of(
        lambda: calculate(Settings.of(step["config"]), _streams(step["streams"]), remembered), expected, name
    )
    if calculated is expected:
        return  # refused, and nothing was written
    records = list(assignment_records(calculated.model, remembered))
    model_id = job_coordinator_metadata.job_model_id(calculated.model)
    if "containers" not in varying:
        containers = {str(id_): sorted(c.tasks) for id_, c in calculated.model.containers.items()}
        same(f"{name} containers", containers, {i: sorted(t) for i, t in expected["containers"].items()})
    if "job_model_json" not in varying:
        same(f"{name} json", job_model_json.encode(calculated.model).decode(), expected["job_model_json"])
    if "job_model_id" in varying:
        same(f"{name} id is one of those seen", model_id in step["job_model_ids_seen"], True)
    else:
        same(f"{name} job model id", model_id, expected["job_model_id"])
    same(f"{name} config id", job_coordinator_metadata.config_id(step["config"]), expected["config_id"])
    same(f"{name} max changelog", calculated.model.max_changelog_partitions, expected["max_changelog"])
    if "records_written" not in varying:
        _check_records(name, records, expected["records_written"])
    memory.apply(records)
    memory.changelog = dict(calculated.changelog)
    same(f"{name} changelog mapping", memory.changelog, expected["changelog_mapping_after"])


def _check_records(name: str, records: list[AssignmentRecord], expected: list[Any]) -> None:
    got = [
        [coordinator_message.encode_key(message_type, key).decode(), None if v is None else dict(v)]
        for message_type, key, v in records
    ]
    same(f"{name} records", sorted(map(_canonical, got)), sorted(map(_canonical, expected)))
    puts = [position for position, record in enumerate(got) if record[1] is not None]
    deletes = [position for position, record in enumerate(got) if record[1] is None]
    same(f"{name} deletes come first", max(deletes, default=-1) < min(puts, default=len(got)), True)


def _canonical(record: list[Any]) -> str:
    """A record to compare by; the order of a set of task names depends on the JVM's sets."""
    key, values = record
    if values is not None and "taskNames" in values:
        values = {"taskNames": sorted(json.loads(values["taskNames"]))}
    return json.dumps([key, values], sort_keys=True)
