"""Changing a job's configuration by hand, running or not: `grete config set|unset` and `grete stream write`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from grete.cli.options import warn
from grete.cli.output import print_json
from grete.errors import ConfigError
from grete.text_logs import printable

if TYPE_CHECKING:
    from grete.metadata.coordinator_stream import ConfigChange
    from grete.operations import JobHandle


class ChangedConfig(NamedTuple):
    """A command's changes, with the configuration before and after them."""

    changes: list[ConfigChange]
    old: Mapping[str, str]
    new: Mapping[str, str]


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """`--reason` and `--force`."""
    parser.add_argument("--reason", default="", help="recorded with the change")
    parser.add_argument("--force", action="store_true", help="write what is unknown, invalid or set once")


def change_config(
    handle: JobHandle, changes: Mapping[str, str | None], *, reason: str, force: bool
) -> ChangedConfig:
    """Set keys (None unsets) as one generation; warns of what looks wrong since.

    Paths that are relative are so to the working folder, and are written absolute. Returns the changes, and the
    configuration before and after.

    Raises:
        ConfigError: a key is blank or unknown, the result would be invalid, or a set-once key of a stateful job would
            change. `force` allows all but a blank key.
    """
    from grete.config.paths import absolute_path, working_folder
    from grete.config.rules.warnings import warnings_of
    from grete.operations.configuration import refuse_blank, set_config

    refuse_blank(changes)
    old, folder = handle.config(), working_folder()
    changes = {
        key: None if value is None else absolute_path(key, value, folder) for key, value in changes.items()
    }
    try:
        done = set_config(handle, changes, reason=reason, force=force)
    except ConfigError as error:
        raise ConfigError(*(f"{p}; --force writes it all the same" for p in error.problems)) from error
    known, new = set(warnings_of(old)), handle.config()
    for message in warnings_of(new):
        if message not in known:
            warn(message)
    _warn_of_idle_containers(handle)
    return ChangedConfig(done, old, new)


def _warn_of_idle_containers(handle: JobHandle) -> None:
    """The inputs may grow, so it is no error here; a coordinator refuses the model, and goes on with the last one."""
    from grete.config.key_tables.job import CONTAINER_COUNT
    from grete.config.values import valid_value_of

    tasks, count = len(handle.assignments()), valid_value_of(handle.config(), CONTAINER_COUNT) or 1
    if tasks and count > tasks:
        warn(
            f"job.container.count={count}, and the job has {tasks} tasks so far: a running job keeps the number it "
            f"has, and a job that is started is refused until there are as many tasks"
        )


def print_changes(
    changes: Iterable[ConfigChange], output: str, old: Mapping[str, str], new: Mapping[str, str]
) -> None:
    """Print each change with old and new value, secrets masked, and what it restarts in these configurations."""
    from grete.config.rules.changes import diff

    touched = {change.key: change.change_class.value for change in diff(old, new)}
    rows = [{**row, "touches": touched.get(row["key"], row["touches"])} for row in shown_changes(changes)]
    if output == "json":
        print_json(rows)
        return
    for row in rows:
        print(
            printable(f"{row['key']}: {or_unset(row['old'])} -> {or_unset(row['new'])}  ({row['touches']})")
        )
    if not rows:
        print("nothing to change")


def shown_changes(changes: Iterable[ConfigChange]) -> Iterator[dict[str, Any]]:
    """Changes for people and programs: key, old, new (None is unset), and the key's change class."""
    from grete.config.keys import find_key
    from grete.config.redact import redact_value

    for change in changes:
        known = find_key(change.key)
        old, new = (
            None if value is None else redact_value(change.key, value) for value in (change.old, change.new)
        )
        touches = "restart-container" if known is None else known.change.value
        yield {"key": change.key, "old": old, "new": new, "touches": touches}


def or_unset(value: str | None) -> str:
    """A value in a sentence."""
    return "(not set)" if value is None else value
