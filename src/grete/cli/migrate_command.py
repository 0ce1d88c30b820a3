"""`grete migrate samza --check FILE`: what of a Samza job carries over, key by key; nothing is run or changed.

`grete migrate spark` is in `migrate_spark`, `to-spark` in `migrate_to_spark`.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grete.cli import migrate_spark, migrate_to_spark
from grete.cli.migrate_take_over import print_take_over, take_over_document
from grete.cli.options import add_common_options
from grete.cli.output import cell, print_json

if TYPE_CHECKING:
    from grete.config.settings import Settings
    from grete.migration.check import Migration
    from grete.migration.note import Note
    from grete.migration.take_over import TakeOver

_EPILOG = (
    "Exit code 0: nothing stands in the way but code that is to be ported; 1: something will not work. "
    "No broker is asked without --ask-systems or --coordinator-stream."
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    origins = parser.add_subparsers(dest="origin", required=True, metavar="samza|spark|to-spark")
    samza = origins.add_parser("samza", help="a job of Apache Samza", epilog=_EPILOG)
    asked = samza.add_mutually_exclusive_group(required=True)
    asked.add_argument("--check", nargs="+", metavar="FILE", help="the job's configuration; later ones win")
    asked.add_argument(
        "--methods",
        action="store_true",
        help="what each of Samza's methods is called in Python, and nothing else",
    )
    samza.add_argument(
        "--ask-systems",
        action="store_true",
        help="ask the brokers which streams there are, so which of them a regex chooses as inputs",
    )
    samza.add_argument(
        "--coordinator-stream",
        action="store_true",
        help="ask the brokers as well: what of the job's coordinator stream, checkpoints and changelogs would be "
        "taken over; nothing is written",
    )
    samza.add_argument("--write", metavar="FILE", help="write the .properties file that grete runs")
    add_common_options(samza)
    samza.set_defaults(run=run)
    migrate_spark.declare(origins)
    migrate_to_spark.declare(origins)


def run(options: argparse.Namespace) -> int:
    """Check, print, write; exit 1 when something will not work."""
    from grete.migration.check import check
    from grete.migration.write import written_properties

    if options.methods:
        return _show_methods(options.output)
    logging.getLogger("grete").addHandler(logging.NullHandler())  # errors say what clients would say as well
    asks = options.ask_systems or options.coordinator_stream
    migration = check(_loaded(options.check), list_streams=_streams if asks else None)
    found = _take_over(migration) if options.coordinator_stream else None
    if options.write:
        text = written_properties(migration, ", ".join(Path(path).name for path in options.check))
        with Path(options.write).open("x", encoding="utf-8") as file:  # a file that is there is not replaced
            Path(options.write).chmod(0o600)
            file.write(text)
    if options.output == "json":
        print_json(_document(migration) | ({} if found is None else {"take_over": take_over_document(found)}))
    else:
        _print(migration)
        if found is not None:
            print_take_over(found)
    return 1 if migration.blocks or (found is not None and found.blocks) else 0


def _streams(system: str, settings: Settings) -> Sequence[str]:
    """The streams of a system, for regexes that choose inputs."""
    from grete.clock import SystemClock
    from grete.environment import grete_home
    from grete.systems.factory import open_system

    with closing(open_system(settings, system, grete_home(), SystemClock())) as opened:
        return opened.streams()


def _take_over(migration: Migration) -> TakeOver:
    from grete.clock import SystemClock
    from grete.config.derived import canonical_keys
    from grete.environment import grete_home
    from grete.migration.take_over import take_over

    return take_over(canonical_keys(migration.run), grete_home(), SystemClock())


def _loaded(paths: list[str]) -> dict[str, str]:
    """The files as they are: without what grete adds when a job is submitted."""
    from grete.config.load import config_path, load_file

    config: dict[str, str] = {}
    for path in paths:
        config |= load_file(config_path(path))
    return config


def _document(migration: Migration) -> dict[str, Any]:
    return {
        "blocks": migration.blocks,
        "counts": _counts(migration),
        "keys": [_row(migration, note) for note in migration.notes],
    }


def _row(migration: Migration, note: Note) -> dict[str, Any]:
    from grete.config.redact import redact_value

    value = migration.config.get(note.key)
    return {
        "section": note.section.value,
        "key": note.key,
        "value": None if value is None else redact_value(note.key, value),
        "outcome": note.outcome.value,
        "says": note.says,
        "way_out": note.way_out,
        "changes": dict(note.changes),
    }


def _counts(migration: Migration) -> dict[str, int]:
    from grete.migration.note import Outcome

    found = Counter(note.outcome for note in migration.notes)
    return {outcome.value: found[outcome] for outcome in Outcome}


def _print(migration: Migration) -> None:
    section = ""
    for note in migration.notes:
        if note.section.value != section:
            section = note.section.value
            print(f"\n{section}" if note is not migration.notes[0] else section)
        _print_note(_row(migration, note))
    if migration.needs_port:
        print("\nSamza's methods in Python: grete migrate samza --methods")
    print("\n" + ", ".join(f"{count} {outcome}" for outcome, count in _counts(migration).items()))


def _print_note(row: dict[str, Any]) -> None:
    value = "" if row["value"] is None else f"={cell(row['value']) if row['value'] else ''}"
    print(f"  {row['outcome']:<13}  {row['key']}{value}")
    becomes = [f"{key}={new}" if new is not None else f"without {key}" for key, new in row["changes"].items()]
    for line in (row["says"], ", ".join(becomes), row["way_out"]):
        if line:
            print(f"{'':17}{line}")


def _show_methods(output: str) -> int:
    from grete.migration.application import METHODS

    if output == "json":
        print_json([{"samza": samza, "grete": ours} for samza, ours in METHODS])
        return 0
    width = max(len(samza) for samza, _ in METHODS)
    for samza, ours in METHODS:
        print(f"{samza:<{width}}  {ours}")
    return 0
