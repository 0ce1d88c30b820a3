"""Everything that a container holds while it works for one assignment, opened in its order, whatever its engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from grete.clock import Clock
from grete.container.assignment import Assignment
from grete.container.checkpoints import checkpoint_store
from grete.container.offset_publisher import OffsetPublishers, open_publishers
from grete.container.process_state import ProcessState
from grete.container.run_lock import running_in
from grete.container.start import Started, prepare, report_skipped
from grete.systems.factory import open_system


@contextmanager
def open_resources(
    assignment: Assignment, home: Path, clock: Clock, kept: ProcessState
) -> Iterator[tuple[Started, OffsetPublishers]]:
    """The folder's lock, system and checkpoint store, a start from them, and the publishers of consumer groups.

    Raises:
        GreteError: see `prepare` and `report_skipped`.
    """
    with ExitStack() as held:
        held.enter_context(running_in(assignment.state_directory(home)))
        settings = assignment.settings
        system = held.enter_context(kept.system.lent(settings, settings.task.commit_system, home, clock))
        store = checkpoint_store(assignment, clock, home)
        if store is not None:
            held.callback(store.close)
        ended = kept.take(assignment.fence)
        others = {}
        for name in sorted({ssp.system for ssp in assignment.ssps} - {settings.task.commit_system}):
            others[name] = open_system(settings, name, home, clock)
            held.callback(others[name].close)
        started = prepare(assignment, system, store, clock, home, ended=ended, others=others)
        report_skipped(assignment, started.skipped, home)
        publishers = open_publishers(assignment, started.systems, clock, started.next_offsets)
        yield started, held.enter_context(publishers)
