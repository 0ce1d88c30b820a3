"""Prints what the demo has to show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from figures import carriers, delays
from places import Place

from grete.cli.output import print_table
from grete.model.ids import JobId
from grete.operations import JobHandle, open_job


def show_figures(place: Place) -> None:
    """The carrier table and the worst chains."""
    system = place.system
    print(f"\nCarriers, from the DataFrame pipeline ({place.name}.carriers)")
    names = ("flights", "cancelled", "mean_arr_delay", "max_arr_delay")
    print_table(
        ("carrier", "flights", "cancelled", "mean arrival delay", "max"),
        [(carrier, *(record[name] for name in names)) for carrier, record in carriers(system).items()],
    )
    found = delays(system)
    print(f"\nWorst chains of inherited delays, from the stateful StreamTask ({place.name}.inherited-delays)")
    print_table(
        ("aircraft", "late in a row", "minutes", "from", "to"),
        [tuple(chain.values()) for chain in found["chains"]],
    )
    cancelled, inherited = f"{found['cancelled']:,} cancelled", f"{found['inherited']:,} delays inherited"
    print(
        f"{found['flights']:,} flights followed: {cancelled}, {inherited} from the aircraft's flight before."
    )


def show_jobs(names: Sequence[str], place: Place) -> None:
    """Each job's model and checkpoints, a line a task."""
    for name in names:
        with open_job(JobId(name), place.settings_of(name)) as handle:
            _show_job(name, handle)


def _show_job(name: str, handle: JobHandle) -> None:
    assignments, changelog = handle.assignments(), handle.changelog_mapping()
    hosts, commits = handle.localities(), handle.checkpoints.read()
    print(f"\nJob {name}: {len(assignments)} tasks")
    by_container = sorted(assignments.items(), key=lambda item: (item[1], item[0]))
    for container, tasks in groupby(by_container, key=lambda item: item[1]):
        print(f"container {container} on {hosts.get(container, '-')}")
        print_table(
            ("  task", "changelog partition", "checkpoint (last processed)"),
            [
                (
                    f"  {task}",
                    changelog.get(task),
                    ", ".join(f"{ssp}: {o}" for ssp, o in sorted(commits[task].offsets.items()))
                    if task in commits
                    else None,
                )
                for task, _ in tasks
            ],
        )


def show_places(home: Path, place: Place) -> None:
    """Where everything is."""
    print(f"\nEverything is in {home} (GRETE_HOME):")
    for line in place.shown:
        print(line)
    print("  jobs/                 store files (a cache of the changelogs), Spark's checkpoints, logs")
    if place.name == "local":
        print("Look around: .venv/bin/grete status, .venv/bin/grete checkpoint show --job carriers")
