"""`grete init [DIR]`: a small project with a job, its configuration, sample data, a test and a README."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grete.cli.output import print_json
from grete.errors import ConfigError
from grete.text_logs import printable

if TYPE_CHECKING:
    from grete.migration.check import Migration

KINDS = {
    "pipeline": "a DataFrame pipeline of Spark's",
    "task": "a StreamTask, called for each record, with state",
    "samza": "a job of Apache Samza's, from its .properties file",
}
SYSTEMS = {"local": "one file on this machine, no server", "kafka": "topics of a broker"}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "directory", nargs="?", type=Path, metavar="DIR", help="a new or empty folder (default: this one)"
    )
    parser.add_argument(
        "--kind", choices=KINDS, help="; ".join(f"{name}: {what}" for name, what in KINDS.items())
    )
    parser.add_argument(
        "--from-file", type=Path, metavar="FILE", help="with --kind samza: the job's configuration"
    )
    parser.add_argument(
        "--system", choices=SYSTEMS, help="; ".join(f"{name}: {what}" for name, what in SYSTEMS.items())
    )
    parser.add_argument("--name", help="the job's name (default: the folder's)")
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="for people, or for programs"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask what was not said, and write the project; nothing that is there is replaced."""
    asks = sys.stdin.isatty() and sys.stdout.isatty() and options.output == "table"
    folder = options.directory or Path()
    kind = options.kind or ("samza" if options.from_file else _asked("kind", KINDS, asks=asks))
    found = None
    if kind == "samza":
        name, files, found = _from_samza(options)
    else:
        name, files = _new(options, folder, kind, _asked_system(options, asks=asks))
    write(folder, files, is_private=found is not None)  # a configuration that ran may have passwords in it
    _say(options, folder, name, sorted(files), found)
    return 0


def _asked_system(options: argparse.Namespace, *, asks: bool) -> str:
    system: str = options.system or _asked("system", SYSTEMS, asks=asks)
    return system


def _asked(what: str, choices: Mapping[str, str], *, asks: bool) -> str:
    """The first one where nobody can be asked."""
    first = next(iter(choices))
    while asks:
        for name, meaning in choices.items():
            print(f"  {name:10}{meaning}")
        answer = input(f"{what} [{first}]: ").strip().lower() or first
        if near := [name for name in choices if name.startswith(answer)]:
            return near[0]
    return first


def _new(options: argparse.Namespace, folder: Path, kind: str, system: str) -> tuple[str, Mapping[str, str]]:
    from grete.projects.render import Project

    if options.from_file is not None:
        raise ConfigError(f"--from-file {options.from_file} is for --kind samza")
    project = Project(options.name or folder.resolve().name, kind, system)
    return project.name, project.files()


def _from_samza(options: argparse.Namespace) -> tuple[str, Mapping[str, str], Migration]:
    from grete.config.load import config_path, load_file
    from grete.migration.new_project import samza_project

    if options.from_file is None:
        raise ConfigError("--kind samza needs the job's configuration: --from-file FILE")
    for given, value in (("--name", options.name), ("--system", options.system)):
        if value is not None:
            raise ConfigError(f"{given} {value} is not for --kind samza: the configuration says it")
    path = config_path(str(options.from_file))
    return samza_project(path, load_file(path))


def write(folder: Path, files: Mapping[str, str], *, is_private: bool = False) -> None:
    """Write all of them, or none where one of them is there. A private configuration is its owner's to read alone.

    Raises:
        ConfigError: the folder has one of them, or is none.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is no folder")
    there = sorted(path for path in files if os.path.lexists(folder / path))
    if there:
        raise ConfigError(f"{folder.resolve()} has {', '.join(there)} already: name another folder")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / path).open("x", encoding="utf-8") as file:
            if is_private and path.endswith(".properties"):
                (folder / path).chmod(0o600)
            file.write(text)


def _blocking(found: Migration | None) -> list[str]:
    """The keys with which the job will not run, whatever is ported."""
    if found is None:
        return []
    from grete.migration.note import Outcome

    return [note.key for note in found.notes if note.outcome is Outcome.BLOCKS]


def _say(
    options: argparse.Namespace, folder: Path, name: str, files: Sequence[str], found: Migration | None
) -> None:
    blocking = _blocking(found)
    if options.output == "json":
        print_json({"job": name, "folder": str(folder.resolve()), "files": list(files), "blocks": blocking})
        return
    print("\n".join(printable(str(folder / file)) for file in files))
    if blocking:
        print(f"will not work as it is: {printable(', '.join(blocking))}; {name}.properties says why")
    enter = "" if options.directory is None else f"cd {printable(str(folder))} && "
    print(f"next: {enter}pytest, and what README.md says")
