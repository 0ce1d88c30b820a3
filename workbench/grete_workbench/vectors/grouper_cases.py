"""Cases of SSP groupers, partition expansion and task-name groupers."""

from __future__ import annotations

from typing import Any

from grete.config.key_tables.task import NAME_GROUPER
from grete.config.settings import Settings
from grete.grouping import standby
from grete.grouping.expansion import keep_keys_with_their_state
from grete.grouping.ssp import KEY, Groups, ssp_grouper
from grete.grouping.task_names import (
    Assignment,
    Containers,
    group_by_container_count,
    group_by_locality,
    task_name_grouper,
)
from grete.model.ids import ContainerId, SystemStreamPartition, TaskName
from grete.model.job import ContainerModel, TaskModel
from grete_workbench.vectors.hash_cases import ssp_parts
from grete_workbench.vectors.registry import (
    Case,
    Difference,
    checker,
    has_fields,
    has_op,
    result_of,
    same,
    throws,
)


def _all_ssps(streams: list[Any]) -> list[SystemStreamPartition]:
    return [
        SystemStreamPartition(system, stream, p) for system, stream, count in streams for p in range(count)
    ]


def _shown(groups: Groups) -> list[Any]:
    return [[task, sorted(ssp_parts(ssp) for ssp in ssps)] for task, ssps in sorted(groups.items())]


def _expected(result: Any) -> Any:
    return [[task, sorted(ssps)] for task, ssps in result] if isinstance(result, list) else result


@checker("ssp_groupers", knows=has_fields("grouper", "streams"))
def check_ssp_grouper(case: Case) -> None:
    """SSPs by task, as sets; and in the original's order."""
    settings = Settings.of({**case["config"], KEY: case["grouper"]})
    groups = result_of(
        lambda: ssp_grouper(settings)(_all_ssps(case["streams"]), settings), case["result"], "groups"
    )
    if groups is case["result"]:
        return
    same("groups", _shown(groups), _expected(case["result"]))
    if not case["grouper"].startswith("AllSsp"):
        got = [[task, [ssp_parts(ssp) for ssp in ssps]] for task, ssps in sorted(groups.items())]
        same("groups in order", got, case["result"])


@checker("ssp_grouper_proxy", knows=has_fields("grouper", "current_streams", "previous_streams"))
def check_expansion(case: Case) -> None:
    """Where the partitions of a grown stream go."""
    settings = Settings.of({**case["config"], KEY: case["grouper"]})
    grouper = ssp_grouper(settings)
    previous = grouper(_all_ssps(case["previous_streams"]), settings)

    def compute() -> Groups:
        groups = grouper(_all_ssps(case["current_streams"]), settings)
        return keep_keys_with_their_state(groups, previous, settings)

    groups = result_of(compute, case["result"], "groups")
    if groups is not case["result"]:
        same("groups", _shown(groups), _expected(case["result"]))


def _names(case: Case) -> list[TaskName]:
    return [TaskName(case["name"].replace("%d", str(i))) for i in range(case["tasks"])]


def _as_sets(assignment: Assignment) -> dict[str, list[str]]:
    return {str(id_): sorted(tasks) for id_, tasks in assignment.items()}


@checker(
    "task_groupers",
    knows=has_op("group", "group with ids", "balance", "locality", "standby", "StandbyTaskUtil"),
)
def check_task_grouper(case: Case) -> None:
    """Tasks by container, as sets."""
    match case["op"]:
        case "group" | "group with ids" | "balance":
            got = result_of(lambda: _as_sets(_group(case)), case["result"], "containers")
            same("containers", got, _sorted(case["result"]))
        case "locality":
            locality = {TaskName(task): host for task, host in case["task_locality"].items()}
            got = result_of(
                lambda: _as_sets(group_by_locality(_names(case), case["processor_locality"], locality)),
                case["result"],
                "containers",
            )
            same("containers", got, _sorted(case["result"]))
        case "standby":
            _check_standby(case)
        case "StandbyTaskUtil":
            _check_standby_names(case)
        case op:
            raise Difference(f"unknown op {op!r}")


def _sorted(result: Any) -> Any:
    return result if throws(result) else {id_: sorted(tasks) for id_, tasks in result.items()}


def _check_standby(case: Case) -> None:
    containers = _containers(case)
    every = result_of(
        lambda: {**containers, **standby.standby_containers(containers, case["replication_factor"])},
        case["result"],
        "containers",
    )
    if every is case["result"]:
        return
    got = {str(id_): sorted(container.tasks) for id_, container in every.items()}
    same("containers", got, _sorted(case["result"]))
    models = {
        str(task.name): [task.mode.value, task.changelog_partition, [ssp_parts(ssp) for ssp in task.ssps]]
        for container in every.values()
        for task in container.tasks.values()
    }
    same("task models", models, case["task_models"])


def _containers(case: Case) -> dict[ContainerId, ContainerModel]:
    """Task number i reads partition i of one stream, whichever the file's is."""
    read = [ssp for _, _, ssps in case.get("task_models", {}).values() for ssp in ssps]
    system, stream = read[0][:2] if read else ("kafka", "in")
    models = {
        name: TaskModel(name, (SystemStreamPartition(system, stream, i),), i)
        for i, name in enumerate(_names(case))
    }
    assignment = group_by_container_count(_names(case), case["container_count"])
    return {
        id_: ContainerModel(id_, {task: models[task] for task in tasks}) for id_, tasks in assignment.items()
    }


def _check_standby_names(case: Case) -> None:
    id_ = case["container_id"]
    same("is standby", standby.is_standby_container(id_), case["is_standby"])
    same("active", standby.active_container(id_), case["active"])
    for field, expected in case.items():
        if field.startswith("standby_id_"):
            replica = int(field.removeprefix("standby_id_"))
            same("standby id", standby.standby_container(id_, replica), expected)
    same("standby task", standby.standby_task(id_, 1), case["standby_task"])
    same("active task", standby.active_task(case["standby_task"]), case["active_task_of_that"])


def _group(case: Case) -> Assignment:
    names, count = sorted(_names(case)), case.get("container_count", 0)
    containers = Containers(
        dict.fromkeys(case.get("ids", map(str, range(count))), "ANY_HOST"),
        lambda: names,
        {TaskName(task): ContainerId(id_) for task, id_ in case.get("previous", {}).items()},
        is_sticky=case["op"] == "balance",
        own_id=str(count),
    )
    grouper = case.get("grouper", "GroupByContainerCount").removesuffix("Factory") + "Factory"
    return task_name_grouper(Settings.of({NAME_GROUPER.name: grouper}))(names, containers)
