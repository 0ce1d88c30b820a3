"""Spark's refusals of a state that does not fit the plan any more, in words that say what has changed."""

from __future__ import annotations

import re

_SCHEMAS = re.compile(
    r"Existing (key|value)_schema=(.*?) and new (?:key|value)_schema=(.*?)\.?$", re.MULTILINE
)
_BEFORE = re.compile(r"Stateful operators in the metadata: \[(.*?)\]")
_NOW = re.compile(r"Stateful operators in current batch: \[(.*?)\]")
_NAME = re.compile(r"OperatorName: (\w+)")
_NAMES = {
    "stateStoreSave": "an aggregation",
    "sessionWindowStateStoreSaveExec": "an aggregation by session windows",
    "dedupe": "dropDuplicates",
    "dedupeWithinWatermark": "dropDuplicatesWithinWatermark",
    "symmetricHashJoin": "a join of streams",
    "globalLimit": "a limit",
}
_OF_KEYS = {"key": "the keys", "value": "the values"}


def changed_state(text: str) -> str:
    """What has changed, from the text of Spark's refusal; empty where that has no form that is known."""
    if found := _SCHEMAS.search(text):
        kind, before, now = found.groups()
        return f"{_OF_KEYS[kind]} of its state were {_columns(before)} and are {_columns(now)}"
    before, now = _BEFORE.search(text), _NOW.search(text)
    if before and now:
        return f"it kept state by {_operators(before[1])}, and keeps it by {_operators(now[1])}"
    if now:
        return f"it keeps state by {_operators(now[1])}, and the files of that state are not there"
    return ""


def _operators(listed: str) -> str:
    return ", ".join(_NAMES.get(name, name) for name in _NAME.findall(listed)) or "nothing"


def _columns(schema: str) -> str:
    """A schema as Spark prints it, `StructType(StructField(k,StringType,true))`, as `(k string)`."""
    text = re.sub(r"StructField\(([^,()]*),", r"\1 ", schema)
    text = re.sub(r",(?:true|false)\)", "", text).replace("StructType(", "(")
    return re.sub(r"(\w+)Type\b", lambda word: word[1].lower(), re.sub(r",(?=[a-zA-Z_])", ", ", text))
