"""How `grete migrate samza --coordinator-stream` shows what there is to take over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grete.cli.output import print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grete.migration.note import Note
    from grete.migration.take_over import TakeOver


def take_over_document(found: TakeOver) -> dict[str, Any]:
    """For JSON."""
    return {
        "stream": found.stream,
        "keys": found.keys,
        "differs": list(found.differs),
        "blocks": found.blocks,
        "tasks": [
            {
                "task": task.task,
                "container": task.container,
                "changelog_partition": task.changelog_partition,
                "checkpoint": {str(ssp): task.checkpoint.get(ssp) for ssp in task.ssps},
            }
            for task in found.tasks
        ],
        "findings": [finding(note) for note in found.notes],
    }


def finding(note: Note) -> dict[str, str]:
    """A note for JSON."""
    return {
        "section": note.section.value,
        "what": note.key,
        "outcome": note.outcome.value,
        "says": note.says,
        "way_out": note.way_out,
    }


def print_take_over(found: TakeOver) -> None:
    """For people."""
    print(
        f"\nin the brokers: {found.stream}, {found.keys} keys, {len(found.differs)} differ from what would be run"
    )
    rows = [
        (task.task, task.container, task.changelog_partition, ssp, task.checkpoint.get(ssp))
        for task in found.tasks
        for ssp in task.ssps
    ]
    if rows:
        print_table(("task", "container", "changelog partition", "input", "checkpoint"), rows)
    print_findings(found.notes)


def print_findings(notes: Iterable[Note]) -> None:
    """Notes for people."""
    for note in notes:
        print(f"  {note.outcome:<13}  {note.key}: {note.says}")
        if note.way_out:
            print(f"{'':17}{note.way_out}")
