"""What an application expects of its rows and messages, checked as `expect` of its context says.

A row meets an expectation when its condition is true; null is not. What meets it and what does not is counted in
metrics, as `checked` and `failed` of the group `expectation.NAME`. Nothing here imports pyspark before a pipeline
expects something.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, get_args

from grete.api import Action, Counter, MetricsRegistry
from grete.errors import ConfigError, ExpectationFailed, ProcessingError
from grete.suggestions import or_one_of

EXPECTATION = "expectation."
"""Metrics of one are in the group `expectation.NAME`, of a task's in the task, of a pipeline's in its container."""
_ACTIONS = get_args(Action)
CHECKED, FAILED = "checked", "failed"
PROBLEM = "__problem"
"""The column of what is set aside that says why."""
SET_ASIDE = "__set_aside_"
"""How the names of outputs begin that are rows set aside, beside those that `build` returns."""
_PLACE = ("stream", "partition", "offset")
_RECORD = (*_PLACE, "key", "value")
_OF_SEVERAL = ("struct", "array", "map", "variant")
"""Types that `to_json` takes; of any other the text is JSON, or what a text was."""


class TaskExpectations:
    """Those of one task."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._metrics = metrics
        self._counters: dict[str, tuple[Counter, Counter]] = {}
        """Of what is checked and of what fails, by name: a message pays for one look."""

    def check(self, name: str, is_met: bool, action: Action = "count") -> bool:
        """See `grete.TaskContext.expect`."""
        _check_action(name, action)
        checked, failed = self._counters.get(name) or self._counted(name)
        checked.inc()
        if is_met:
            return True
        failed.inc()
        if action in ("dead-letter", "fail"):
            raise ExpectationFailed(_unmet(name), sets_aside=action == "dead-letter")
        return action == "count"

    def _counted(self, name: str) -> tuple[Counter, Counter]:
        group = f"{EXPECTATION}{name}"
        made = self._metrics.counter(CHECKED, group=group), self._metrics.counter(FAILED, group=group)
        self._counters[name] = made
        return made


class PipelineExpectations:
    """Those of one call of `build`."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self.set_aside: dict[str, Any] = {}
        """Rows for the stream of dead letters, by names that begin with `SET_ASIDE`."""

    def check(self, frame: Any, condition: str, action: Action, name: str) -> Any:
        """See `grete.PipelineContext.expect`."""
        name = name or condition
        _check_action(name, action)
        if name in self._names:
            raise ConfigError(f"expect: there are two expectations {name!r}; name them, by name=")
        self._names.add(name)
        functions = importlib.import_module("pyspark.sql.functions")
        no, yes = functions.lit(False), functions.lit(True)
        is_met = functions.coalesce(functions.expr(condition), no)
        counted = frame.observe(
            f"{EXPECTATION}{name}",
            functions.count(functions.lit(1)).alias(CHECKED),
            functions.count_if(~is_met).alias(FAILED),
        )
        if action == "count":
            return counted
        if action == "fail":
            raised = functions.raise_error(_raised(functions, name, frame.columns))
            return counted.where(functions.when(is_met, yes).otherwise(raised))
        if action == "dead-letter":
            letters = self._letters(functions, counted.where(~is_met), name)
            self.set_aside[f"{SET_ASIDE}{len(self.set_aside)}"] = letters
        return counted.where(is_met)

    def _letters(self, functions: Any, rows: Any, name: str) -> Any:
        """The rows as they are set aside, which needs the columns that their input has."""
        missing = [column for column in _RECORD if column not in rows.columns]
        if missing:
            raise ConfigError(
                f"expect {name!r}: the rows have no column {', '.join(missing)} any more, and a dead letter names "
                f"its record and keeps it: check them before the input's columns are selected away, or use "
                f"action='drop'"
            )
        types = dict(rows.dtypes)
        kept = [_bytes(functions, column, types[column]).alias(column) for column in ("key", "value")]
        headers = ["headers"] if "headers" in types else []
        return rows.select(*_PLACE, *headers, *kept, functions.lit(_unmet(name)).alias(PROBLEM))


def letters_of(outputs: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The outputs that `build` has returned, and what is set aside beside them."""
    own = {name: frame for name, frame in outputs.items() if not name.startswith(SET_ASIDE)}
    return own, [frame for name, frame in outputs.items() if name not in own]


def _bytes(functions: Any, column: str, kind: str) -> Any:
    """The column as bytes: as it is, or what was decoded as JSON."""
    own = functions.col(column)
    if kind == "binary":
        return own
    text = functions.to_json(own) if kind.startswith(_OF_SEVERAL) else own.cast("string")
    return text.cast("binary")


def _raised(functions: Any, name: str, columns: list[str]) -> Any:
    """The error of a row, with its place where the columns of its input are there."""
    is_placed = set(_PLACE) <= set(columns)
    place = [
        functions.concat_ws(".", *_PLACE[:2]),
        functions.lit(" offset "),
        functions.col("offset").cast("string"),
        functions.lit(": "),
    ]
    said = functions.lit(f"{_unmet(name)}; nothing of its batch was committed")
    kind = functions.lit(f"{ProcessingError.__module__}.{ProcessingError.__name__}: ")
    return functions.concat(kind, *(place if is_placed else ()), said)


def _unmet(name: str) -> str:
    return f"expectation {name!r} is not met"


def _check_action(name: str, action: str) -> None:
    if action not in _ACTIONS:
        raise ConfigError(f"expect {name!r}: there is no action {action!r}{or_one_of(action, _ACTIONS)}")
