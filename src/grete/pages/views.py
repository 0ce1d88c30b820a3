"""What each page shows of a job: values for a template, read from its handle as the command line reads them."""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from typing import Any

from grete.checkpoint.task_commit import TaskCommit
from grete.config.keys import find_key
from grete.config.redact import redact, redact_value
from grete.config.rules.changes import diff
from grete.errors import GreteError
from grete.metadata.assignments import TaskAssignments
from grete.metadata.history import HistoryEvent
from grete.model.ids import TaskName
from grete.model.job import TaskMode
from grete.operations.causes import what_led_to_it
from grete.operations.container_logs import container_logs, last_lines
from grete.operations.container_status import container_rows
from grete.operations.job_handle import JobHandle
from grete.operations.job_status import counted_by_containers
from grete.operations.store_sizes import store_bytes
from grete.pages.drawing import Box, Moment, life_line, line_chart, pipeline_graph
from grete.pages.paging import paged
from grete.pages.rendering import number
from grete.pages.watch import Watch, rate_now
from grete.text_logs import printable, utc_text

Values = dict[str, Any]
Query = Mapping[str, str]
_HOURS = {"1": 1, "24": 24, "168": 168}
_LAST_LINES = 200
_COMMITS = 50
_FENCES = 100
_RECORDS, _LONGEST_RECORD = 50, 4_000
_FAILURES = frozenset({"failed", "container-given-up", "config-refused", "query-stuck"})
_CHANGES = frozenset(
    {"change", "reconfigured", "rewind", "checkpoint-overwrite", "startpoint-set", "startpoint-deleted"}
)
_STARTS, _ENDS = frozenset({"deployment", "attempt"}), frozenset({"finished", "stopped"})


_WELL = frozenset({"starting", "running", "finished", "stopped", "never ran"})


def overview(handle: JobHandle, row: Values, watch: Watch, query: Query) -> Values:
    """How the job stands, what to do about it, and its life so far."""
    history = handle.history()
    hours = query.get("hours", "")
    to_ms = int(time.time() * 1000)
    from_ms = min([one.timestamp_ms for one in history] or [to_ms])
    if hours in _HOURS:
        from_ms = to_ms - _HOURS[hours] * 3_600_000
    moments = [moment for one in history if (moment := _moment(one)).at_ms >= from_ms]
    course = watch.course(handle.job, handle.state_directory)
    expectations = row["expectations"]
    if expectations is None:  # of tasks a coordinator is asked when somebody looks at their job
        expectations = counted_by_containers(handle).get("expectations")
    return {
        "row": row,
        "expectations": expectations,
        "causes": [] if row["state"] in _WELL else what_led_to_it(history),
        "next_steps": next_steps(handle, row),
        "rate": rate_now(watch.samples(handle.job)),
        "life": life_line(moments, from_ms, to_ms),
        "hours": hours,
        "behind_chart": line_chart(course.behind, "records behind"),
        "rate_chart": line_chart(course.rate, "records per second"),
        "commit_chart": line_chart(
            [(at_s, 1000 * took_s) for at_s, took_s in course.commit_s], "ms per commit"
        ),
        "commit_s": course.commit_s[-1][1] if course.commit_s else None,
        "history": paged([_event(one) for one in reversed(history)], query, ("event", "text", "who")),
        "containers": container_rows(handle),
        "pipelines": pipelines(handle, row),
    }


def pipelines(handle: JobHandle, row: Values) -> Values:
    """Of a running pipeline: where its data goes, and Spark's figures of it, by container."""
    graphs = {}
    for container, groups in sorted((row["spark"] or {}).items()):
        if not groups:
            continue
        outputs = [Box(str(one)) for one in handle.settings.task.own_outputs]
        operators = [Box(name.partition(".")[2], _figures(found)) for name, found in _of(groups, "operator.")]
        sources = [Box(name, _figures(found)) for name, found in _of(groups, "source.")]
        graphs[container] = {
            "graph": pipeline_graph([sources, *([one] for one in reversed(operators)), outputs]),
            "query": _figures(groups.get("query", {})),
            "page": _address(groups.get("query", {}).get("page")),
        }
    return graphs


def _address(text: Any) -> str | None:
    """A container's word for where a page is: no link that does something else."""
    return text if isinstance(text, str) and text.startswith(("http://", "https://")) else None


def _of(groups: Mapping[str, Mapping[str, Any]], prefix: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (name.removeprefix(prefix), found)
        for name, found in sorted(groups.items())
        if name.startswith(prefix)
    ]


def _figures(found: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {utc_text(int(value)) if name == 'watermark-ms' else number(value)}"
        for name, value in sorted(found.items())
        if isinstance(value, int | float)
    ]


def next_steps(handle: JobHandle, row: Values) -> list[tuple[str, str]]:
    """What an operator can do about a job that is not well: the reason, and the command."""
    job, state = f"--job {handle.job.shown}", row["state"]
    steps = []
    if state in ("failed", "died"):
        steps.append(("see what its containers said last", f"grete logs {job}"))
        steps.append(("start it again, where it left off", f"grete run {job}"))
    if row["on_their_own"]:
        steps.append(("end the containers that go on without a coordinator", f"grete stop {job}"))
    if row["resting"]:
        steps += [
            (f"start container {id_} again", f"grete container start {id_} {job}")
            for id_ in sorted(row["resting"])
        ]
    if row["quarantined_count"]:
        steps.append(("see the records that are not understood", f"grete stream quarantine {job}"))
    if state == "unreachable":
        steps.append(("see what does not answer", f"grete doctor {job}"))
    if state in ("finished", "stopped", "never ran"):
        steps.append(("run it", f"grete run {job}"))
    return steps


def work(handle: JobHandle, row: Values, watch: Watch, query: Query) -> Values:
    """Containers, and each partition of each task with where it is."""
    assigned = TaskAssignments(handle.stream)
    containers, modes = assigned.read(), assigned.modes()
    changelogs = handle.changelog_mapping()
    lag = {
        (one["task"], one["system"], one["stream"], one["partition"]): one for one in row["lag"]["partitions"]
    }
    tasks = []
    for task, ssps in sorted(assigned.ssps().items()):
        for ssp in ssps:
            known = lag.get((task, ssp.system, ssp.stream, ssp.partition), {})
            tasks.append(
                {
                    "task": task,
                    "container": containers.get(task, ""),
                    "mode": "standby" if modes.get(task) is TaskMode.STANDBY else "active",
                    "partition": str(ssp),
                    "checkpointed": known.get("checkpointed"),
                    "upcoming": known.get("upcoming"),
                    "behind": known.get("lag"),
                    "changelog": changelogs.get(task),
                }
            )
    shown = paged(tasks, query, ("task", "container", "partition", "behind", "mode"))
    rate_of = watch.partition_rates(handle.job)
    for one in shown.rows:
        one["rate"] = rate_of(one["task"], one["partition"])
        one["stored"] = (
            store_bytes(handle, one["task"], one["container"]) if handle.settings.is_stateful else None
        )
    return {
        "containers": container_rows(handle),
        "tasks": shown,
        "row": row,
        "has_stores": handle.settings.is_stateful,
    }


def checkpoints(handle: JobHandle, query: Query) -> Values:
    """Where each task is, and the commits that can still be rewound to."""
    current, history = handle.checkpoints.read_with_history()
    positions = [
        {"task": task, "partition": str(ssp), "offset": offset, "batch": _batch(commit)}
        for task, commit in sorted(current.items())
        for ssp, offset in sorted(commit.offsets.items())
    ]
    known = [(one, task) for task, commits in history.items() for one in commits]
    newest = heapq.nlargest(_COMMITS, known, key=lambda pair: (pair[0].timestamp_ms, pair[0].log_offset))
    shown = [
        {
            "at_ms": one.timestamp_ms,
            "task": task,
            "batch": _batch(one.commit),
            "offsets": ", ".join(f"{ssp}: {offset}" for ssp, offset in sorted(one.commit.offsets.items())),
        }
        for one, task in newest
    ]
    tasks: list[TaskName] = sorted({*current, *handle.active_tasks()})
    return {
        "positions": paged(positions, query, ("task", "partition", "offset", "batch")),
        "commits": shown,
        "commit_count": len(known),
        "tasks": tasks[:1_000],
        "has_state": bool(handle.settings.store_names) or handle.settings.job.is_pipeline,
    }


def _batch(commit: TaskCommit) -> str:
    return f"{commit.lineage[:8]}/{commit.batch_id}" if commit.lineage else "moved"


def configuration(handle: JobHandle, query: Query) -> Values:
    """Each key with what it means, and the configurations there were."""
    config, generations = redact(handle.config()), handle.config_generations()
    set_in = {change.key: one.number for one in generations for change in one.changes}
    keys = []
    for key, value in sorted(config.items()):
        known = find_key(key)
        keys.append(
            {
                "key": key,
                "value": _cut(value, 2_000),
                "meaning": "" if known is None else known.no_effect or known.doc,
                "change": "restart-container" if known is None else known.change.value,
                "set_in": set_in.get(key),
            }
        )
    shown = []
    for one in reversed(generations):
        origin, values = one.message.origin, one.message.values or {}
        shown.append(
            {
                "number": one.number,
                "at_ms": None if origin is None else origin.timestamp_ms,
                "who": None if origin is None else f"{origin.username}@{origin.host}",
                "reason": values.get("reason", ""),
                "is_whole": one.whole,
                "changes": [
                    (
                        c.key,
                        *(None if v is None else _cut(redact_value(c.key, v), 200) for v in (c.old, c.new)),
                    )
                    for c in one.changes[:20]
                ],
                "more": max(0, len(one.changes) - 20),
            }
        )
    configs = {str(one.number): one.config for one in generations}
    first, second = query.get("from", ""), query.get("to", "")
    differences = []
    if first in configs and second in configs:
        old, new = redact(configs[first]), redact(configs[second])
        classes = {c.key: c.change_class.value for c in diff(configs[first], configs[second])}
        differences = [
            (
                key,
                *(None if key not in of else _cut(of[key], 2_000) for of in (old, new)),
                classes.get(key, ""),
            )
            for key in sorted({*old, *new})
            if configs[first].get(key) != configs[second].get(key)
        ]
    return {
        "keys": paged(keys, query, ("key", "value", "meaning", "change", "set_in"), size=200),
        "generations": shown[:50],
        "differences": differences,
        "compared": (first, second) if first in configs and second in configs else None,
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters)"


def failures(handle: JobHandle, query: Query) -> Values:
    """How containers ended, the ends of their logs, and messages that were set aside."""
    rows = [_event(one) for one in reversed(handle.history()) if kind_of(one) == "failure"]
    logs = container_logs(handle)
    chosen = query.get("container") or next(iter(logs), "")
    letters, problem = _dead_letters(handle)
    return {
        "failures": rows[:100],
        "logs": list(logs),
        "chosen": chosen,
        "lines": last_lines(logs[chosen], _LAST_LINES) if chosen in logs else [],
        "folder": str(handle.state_directory / "logs"),
        "letters": letters,
        "letters_problem": problem,
    }


def _dead_letters(handle: JobHandle) -> tuple[list[Values], str]:
    from grete.operations.dead_letters import open_dead_letters  # Arrow
    from grete.pages.stream_views import shown

    if handle.settings.task.dead_letters is None:
        return [], "the job sets nothing aside: task.poison.dead-letter.stream is not set"
    try:
        with open_dead_letters(handle) as opened:
            found = list(opened.last(50))
    except GreteError as error:
        return [], str(error)
    letters = [
        {
            "number": one.number,
            "is_replayed": one.is_replayed,
            "task": one.task,
            "partition": str(one.ssp),
            "offset": one.offset,
            "error": one.error[:500],
            "at_ms": one.timestamp_ms,
            "value": shown(one.value),
        }
        for one in sorted(found, key=lambda one: -one.timestamp_ms)
    ]
    return letters, ""


def coordination(handle: JobHandle) -> Values:
    """Who leads, since when, and who stands by."""
    election = handle.election
    holder = election.holder()
    found: Values = {
        "holder": holder,
        "epoch": election.leading_epoch(),
        "lease_s": election.lease_s,
        "standbys": [],
    }
    found["heard_s"] = None
    if holder is not None and holder.heard_ms is not None:
        found["heard_s"] = max(0.0, time.time() - holder.heard_ms / 1000)
    found["standbys"] = election.standbys()
    history = list(reversed(handle.history()))
    found["leaders"] = [_event(one) for one in history if one.event in _STARTS]
    found["fences"] = [_event(one) for one in history if is_fence(one)][:_FENCES]
    return found


def is_fence(one: HistoryEvent) -> bool:
    """Whether somebody was kept from writing: cut off in a change, ended without a coordinator, or fenced himself."""
    return one.event in ("container-cut-off", "orphan-stopped") or one.details.get("meaning") == "fenced"


def kind_of(one: HistoryEvent) -> str:
    """Of start, change, failure, end or other."""
    if one.event in _FAILURES or one.is_failed_exit:
        return "failure"
    kinds = (("start", _STARTS), ("change", _CHANGES), ("end", _ENDS))
    return next((kind for kind, events in kinds if one.event in events), "other")


def _moment(one: HistoryEvent) -> Moment:
    return Moment(one.timestamp_ms, kind_of(one), printable(f"{one.event}  {_details(one)}")[:300])


def _event(one: HistoryEvent) -> Values:
    who = f"{one.username}@{one.host}" if one.username else one.host
    return {"at_ms": one.timestamp_ms, "event": one.event, "text": _details(one), "who": who}


def _details(one: HistoryEvent) -> str:
    return ", ".join(f"{name}={value}" for name, value in one.details.items() if value)
