"""What can be done on the pages: each first says what it would do, and does it with the command line's code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, ClassVar

from grete.config.redact import redact_value
from grete.errors import ConfigError, JobError
from grete.model.ids import ContainerId, TaskName
from grete.model.startpoint import StateChoice
from grete.operations.job_handle import JobHandle
from grete.suggestions import or_one_of

if TYPE_CHECKING:
    from grete.operations.rewind import RewindRequest

Form = Mapping[str, str]
_STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would do: in words, as rows of a table, and as the command that does the same."""

    says: str
    command: str
    headings: tuple[str, ...] = ()
    rows: list[tuple[object, ...]] = field(default_factory=list)


class Action(ABC):
    """Something that an operator does. `fields` are what its form carries."""

    title: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, handle: JobHandle, form: Form) -> None:
        self.handle = handle
        self.form = {name: form.get(name, "").strip() for name in self.fields}
        self.job = f"--job {quote(handle.job.shown)}"

    @abstractmethod
    def preview(self) -> Preview:
        """What it would do now. Writes nothing.

        Raises:
            GreteError: it cannot be done.
        """

    @abstractmethod
    def execute(self, reason: str) -> str:
        """Do it; returns what was done, in a sentence."""


class _StopJob(Action):
    title = "Stop the job"

    def preview(self) -> Preview:
        from grete.operations.orphans import orphans

        left = orphans(self.handle)
        if not left:
            self.handle.election.epoch_to_ask()
        count = len(left or self.handle.launches())
        whose = "which no coordinator leads any more, " if left else ""
        return Preview(
            f"{count} container{'' if count == 1 else 's'}, {whose}end at a batch boundary, or are killed after "
            f"{_STOP_S:g} s. The next start goes on where they were.",
            f"grete stop {self.job}",
        )

    def execute(self, reason: str) -> str:
        from grete.operations.orphans import end_orphans, orphans

        left = orphans(self.handle)
        if left:
            end_orphans(self.handle, left, _STOP_S, reason)
            return "The containers that were left have ended."
        self.handle.requests.stop(_STOP_S, reason)
        return "The job was asked to stop."


class _DrainJob(Action):
    title = "Drain the job"

    def preview(self) -> Preview:
        self.handle.election.epoch_to_ask()
        behind = self.handle.lag().total
        left = "what is left of its inputs" if behind is None else f"the {behind:,} records that are left now"
        return Preview(f"The job processes {left} and ends.", f"grete drain {self.job}")

    def execute(self, reason: str) -> str:
        self.handle.requests.drain(reason)
        return "The job was asked to drain."


class _StepDown(Action):
    title = "Let another coordinator lead"

    def preview(self) -> Preview:
        self.handle.election.epoch_to_ask()
        if not self.handle.election.standbys():
            raise JobError("no coordinator stands by, so nobody would lead the job: start one first")
        return Preview(
            "The coordinator gives its leadership up and one that stands by leads; containers go on.",
            f"grete leader step-down {self.job}",
        )

    def execute(self, reason: str) -> str:
        epoch = self.handle.requests.step_down(reason)
        return f"The coordinator of epoch {epoch} was asked to step down."


class _ChangeContainer(Action):
    title = "Stop, start or restart a container"
    fields = ("container", "what")
    _SAYS: ClassVar[dict[str, str]] = {
        "stop": "It ends at a batch boundary and stays stopped; its tasks wait.",
        "start": "It is started again, and its tasks go on where they were.",
        "restart": "It ends at a batch boundary and is started again.",
    }

    def preview(self) -> Preview:
        id_, what = self.form["container"], self.form["what"]
        if what not in self._SAYS:
            raise ConfigError(f"a container can be stopped, started or restarted, not {what!r}")
        assignments = self.handle.assignments()
        known = sorted(set(assignments.values()))
        if id_ not in known:
            raise JobError(f"job {self.handle.job.shown} has no container {id_!r}{or_one_of(id_, known)}")
        self.handle.election.epoch_to_ask()
        tasks = sorted(task for task, owner in assignments.items() if owner == id_)
        shown = ", ".join(tasks[:10]) + (f" and {len(tasks) - 10} more" if len(tasks) > 10 else "")
        return Preview(
            f"Container {id_} with {shown}. {self._SAYS[what]}",
            f"grete container {what} {quote(id_)} {self.job}",
        )

    def execute(self, reason: str) -> str:
        what, id_ = self.form["what"], self.form["container"]
        self.handle.requests.container(ContainerId(id_), what, _STOP_S, reason)
        return f"Container {id_}: {what} requested."


class _SetKey(Action):
    title = "Change the configuration"
    fields = ("key", "value", "unset")

    @property
    def _change(self) -> dict[str, str | None]:
        return {self.form["key"]: None if self.form["unset"] else self.form["value"]}

    def preview(self) -> Preview:
        from grete.config.rules.changes import diff
        from grete.operations.configuration import check_change

        key, value = self.form["key"], self._change[self.form["key"]]
        old = self.handle.config()
        new = check_change(self.handle, self._change)
        classes = {one.key: one.change_class.value for one in diff(old, new)}
        change = (
            f"unset {quote(key)}" if value is None else f"set {quote(f'{key}={redact_value(key, value)}')}"
        )
        rows: list[tuple[object, ...]] = [
            (one, *(_masked(one, of.get(one)) for of in (old, new)), touches)
            for one, touches in classes.items()
        ]
        says = (
            "Nothing would change." if not rows else "This is written as one generation of the configuration."
        )
        return Preview(says, f"grete config {change} {self.job}", ("key", "now", "then", "restarts"), rows)

    def execute(self, reason: str) -> str:
        from grete.operations.configuration import set_config

        done = set_config(self.handle, self._change, reason=reason)
        return f"{len(done)} key{'' if len(done) == 1 else 's'} changed."


def _masked(key: str, value: str | None) -> str:
    return "(not set)" if value is None else redact_value(key, value)


class _RollBack(Action):
    title = "Write an earlier configuration again"
    fields = ("number",)

    @property
    def _number(self) -> int:
        text = self.form["number"]
        if not text.isdecimal():
            raise ConfigError(f"a generation has a number, not {text!r}")
        return int(text)

    def preview(self) -> Preview:
        from grete.config.rules.changes import diff

        number, old = self._number, self.handle.config()
        found = next((one for one in self.handle.config_generations() if one.number == number), None)
        if found is None:
            raise ConfigError(f"there is no generation {number} in the stream any more")
        rows: list[tuple[object, ...]] = [
            (
                one.key,
                *(_masked(one.key, of.get(one.key)) for of in (old, found.config)),
                one.change_class.value,
            )
            for one in diff(old, found.config)
        ]
        return Preview(
            f"The configuration of generation {number} is written again, as a generation of its own.",
            f"grete config rollback --to {number} {self.job}",
            ("key", "now", "then", "restarts"),
            rows,
        )

    def execute(self, reason: str) -> str:
        from grete.operations.configuration import roll_back_config

        done = roll_back_config(self.handle, self._number, reason=reason)
        return f"{len(done)} keys are as they were in generation {self._number}."


class _RewindJob(Action):
    title = "Rewind"
    fields = ("to", "task", "input", "state", "live")

    def _request(self) -> RewindRequest:
        from grete.checkpoint.rewind_target import parse_target
        from grete.model.ids import SystemStream, SystemStreamPartition
        from grete.operations.rewind import RewindRequest

        inputs: list[SystemStreamPartition | SystemStream] = []
        if text := self.form["input"]:
            inputs = [SystemStream.parse(text)]
            last = text.rpartition(".")[2]
            if last.isdecimal() and text.count(".") > 1:
                inputs = [SystemStreamPartition.parse(text)]
        tasks = [TaskName(self.form["task"])] if self.form["task"] else []
        return RewindRequest(
            parse_target(self.form["to"]), tasks, inputs, StateChoice(self.form["state"] or "keep")
        )

    def preview(self) -> Preview:
        from grete.operations.rewind import plan_rewind

        plan = plan_rewind(self.handle, self._request())
        again, skipped = sum(r.reprocessed for r in plan.rows), sum(r.skipped for r in plan.rows)
        words = ["grete checkpoint rewind --to", quote(self.form["to"])]
        for name, option in (("task", "--task"), ("input", "--ssp"), ("state", "--state")):
            if self.form[name] and (name, self.form[name]) != ("state", "keep"):
                words += [option, quote(self.form[name])]
        if self._is_live:
            words.append("--live")
        when = "at the next batch of the running job" if self._is_live else "at the next start"
        says = (
            f"{again:,} records are processed again and {skipped:,} are left out, {when}. Outputs of what is "
            f"processed again are written again; stores: {self.form['state'] or 'keep'}."
        )
        rows: list[tuple[object, ...]] = [
            (r.task, r.ssp, r.current, r.new, r.reprocessed, r.skipped) for r in plan.rows[:500]
        ]
        headings = ("task", "input", "next offset now", "then", "processed again", "left out")
        return Preview(says, " ".join([*words, self.job, "--execute"]), headings, rows)

    @property
    def _is_live(self) -> bool:
        return bool(self.form["live"]) and self.handle.election.holder() is not None

    def execute(self, reason: str) -> str:
        from grete.operations.rewind import execute_rewind, plan_rewind

        plan, live = plan_rewind(self.handle, self._request()), self._is_live
        execute_rewind(self.handle, plan, live=live, to=self.form["to"], reason=reason)
        return (
            f"The rewind is written; it takes effect {'at the next batch' if live else 'at the next start'}."
        )


class _SendAgain(Action):
    title = "Send dead letters again"
    fields = ("number",)

    @property
    def _numbers(self) -> list[str] | None:
        return [self.form["number"]] if self.form["number"] else None

    def preview(self) -> Preview:
        from grete.operations.dead_letters import open_dead_letters

        with open_dead_letters(self.handle) as opened:
            plan = opened.plan_replay(self._numbers, again=bool(self._numbers))
        rows: list[tuple[object, ...]] = [(str(to), len(letters)) for to, letters in plan.by_input.items()]
        which = "--all" if self._numbers is None else f"--number {self.form['number']} --again"
        says = (
            "Messages are appended to the inputs from which they came." if rows else "There is none to send."
        )
        return Preview(
            says, f"grete dead-letters replay {which} {self.job} --execute", ("input", "messages"), rows
        )

    def execute(self, reason: str) -> str:
        from grete.metadata.history import History
        from grete.operations.dead_letters import open_dead_letters

        with open_dead_letters(self.handle) as opened:
            plan = opened.plan_replay(self._numbers, again=bool(self._numbers))
            opened.execute_replay(plan)
        count = sum(map(len, plan.by_input.values()))
        History(self.handle.stream).append("dead-letters-replayed", count=str(count), reason=reason)
        return f"{count} messages were sent again."


ACTIONS: Mapping[str, type[Action]] = {
    "stop": _StopJob,
    "drain": _DrainJob,
    "step-down": _StepDown,
    "container": _ChangeContainer,
    "set": _SetKey,
    "rollback": _RollBack,
    "rewind": _RewindJob,
    "send-again": _SendAgain,
}


def seen(handle: JobHandle) -> str:
    """What a form was made from: another value means that the job has changed since."""
    history = handle.history()
    generations = handle.config_generations()
    last = history[-1].number if history else 0
    return f"{last}.{generations[-1].number if generations else 0}"


def changed_since(handle: JobHandle, mark: str) -> list[str]:
    """What happened since a form was made, in words; empty where nothing did."""
    if mark == seen(handle):
        return []
    number = mark.partition(".")[0]
    after = int(number) if number.isdecimal() else -1
    rows = [one for one in handle.history() if one.number > after]
    told = [
        f"{one.event} by {one.username or one.host} {one.details.get('reason', '')}".strip() for one in rows
    ]
    return told[-10:] or ["the configuration was changed"]
