"""The `.properties` file that grete runs: Samza's, in its order, with a comment beside each change."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from grete.config.properties import format_properties
from grete.config.redact import redact_value
from grete.migration.check import Migration
from grete.migration.note import Note, Outcome

_WIDTH = 110


def written_properties(migration: Migration, origin: str) -> str:
    """The file's text. Values of secrets are in it where they were in Samza's; comments never show one."""
    notes = {note.key: note for note in migration.notes}
    causes = {key: note for note in migration.notes for key in note.changes}
    lines = [f"# {origin}, for grete. What differs has a comment."]
    for key, value in migration.config.items():
        new = migration.written.get(key)
        note = notes.get(key)
        if new != value:
            lines += ["", f"# {_shown(key, value)}", *_comment(causes[key])]
        elif note is not None and note.outcome is Outcome.BLOCKS:
            lines += ["", *_comment(note)]
        if new is not None:
            lines.append(_line(key, new))
    for key, value in migration.written.items():
        if key not in migration.config:
            lines += ["", *_comment(causes[key]), _line(key, value)]
    for note in migration.notes:
        if note.outcome is Outcome.BLOCKS and note.key not in migration.config:
            lines += ["", f"# {note.key}:", *_comment(note)]
    return "\n".join(lines) + "\n"


def _line(key: str, value: str) -> str:
    return format_properties({key: value}).rstrip("\n")


def _shown(key: str, value: str) -> str:
    return _line(key, redact_value(key, value))


def _comment(note: Note) -> Iterator[str]:
    text = "; ".join(part for part in (note.says, note.way_out) if part)
    for line in textwrap.wrap(f"{note.outcome}: {text}", _WIDTH, break_on_hyphens=False):
        yield f"# {line}"
