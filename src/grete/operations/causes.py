"""What led to how a job stands: its failures since the last start, in sentences, oldest first."""

from __future__ import annotations

from collections.abc import Iterable

from grete.metadata.history import STARTS, HistoryEvent
from grete.text_logs import shortened

_SAID = 400
_MOST = 8
"""Sentences; the newest, should there be more."""


def what_led_to_it(history: Iterable[HistoryEvent]) -> list[str]:
    """A sentence for each failure; what failed again for the same reason is one sentence that says how often."""
    told: list[tuple[str, int]] = []
    for row in history:
        if row.event in STARTS:
            told = []
        sentence = _sentence(row)
        if sentence and told and told[-1][0] == sentence:
            told[-1] = (sentence, told[-1][1] + 1)
        elif sentence:
            told.append((sentence, 1))
    return [text if times == 1 else f"{text} ({times} times)" for text, times in told[-_MOST:]]


def _sentence(row: HistoryEvent) -> str:
    """Empty for what is no failure. Of a reason its first line: a traceback is in the log."""
    said = row.details
    match row.event:
        case "container-exited" if row.is_failed_exit:
            code = f"exit code {said.get('exit_code', 'unknown')}, {said.get('meaning', '')}"
            reason = said.get("reason") or said.get("cause") or "it said nothing"
            return f"Container {said.get('container', '')} failed ({code}): {_first_line(reason)}"
        case "container-given-up":
            return f"Container {said.get('container', '')} is not started again: it has failed too often."
        case "config-refused":
            return (
                f"A configuration was refused: {_first_line(said.get('problem') or said.get('message', ''))}"
            )
        case "query-stuck":
            return f"Container {said.get('container', '')} makes no progress: {_first_line(said.get('problem', ''))}"
        case "failed" if said.get("message", "").startswith("container "):
            return "The job failed with it: the container is not started again."
        case "failed":
            return f"The job failed: {_first_line(said.get('message', ''))}"
    return ""


def _first_line(text: str) -> str:
    return shortened(text.strip().partition("\n")[0], _SAID)
