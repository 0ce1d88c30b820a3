"""`grete config get|set|unset|diff|history|rollback|schema`."""

from __future__ import annotations

import argparse
from typing import Any

from grete.cli.config_change import add_change_options, change_config, or_unset, print_changes, shown_changes
from grete.cli.options import add_job_options, opened_job
from grete.cli.output import print_json
from grete.errors import ConfigError
from grete.suggestions import did_you_mean
from grete.text_logs import printable, utc_text

_SET_SYNTAX = (
    "write `grete config set KEY VALUE`, or `grete config set KEY=VALUE`, which may be repeated; quote a value that "
    "has blanks, and an empty one is `KEY=`"
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    get = actions.add_parser("get", help="one key, or all of them with secrets masked")
    get.add_argument("key", nargs="?", help="this one only")
    get.add_argument("--show-secrets", action="store_true", help="print values as they are")
    set_ = actions.add_parser("set", help="set keys, together")
    set_.add_argument("assignments", nargs="+", metavar="KEY VALUE | KEY=VALUE ...", help="what to set")
    unset = actions.add_parser("unset", help="remove keys, together")
    unset.add_argument("keys", nargs="+", metavar="KEY", help="what to remove")
    diff = actions.add_parser("diff", help="what submitting a file would change")
    diff.add_argument("file", nargs="?", help="by default the files of --config")
    history = actions.add_parser("history", help="who changed what, when and why")
    rollback = actions.add_parser("rollback", help="write an earlier configuration again")
    rollback.add_argument(
        "--to", type=int, metavar="NUMBER", help="as `config history` numbers them; the one before the last"
    )
    schema = actions.add_parser("schema", help="a JSON schema of all keys, for editors")
    schema.add_argument(
        "--properties",
        action="store_true",
        help="instead each key with its meaning, as comments to copy from",
    )
    schema.set_defaults(run=_schema)
    commands = (
        (get, _get),
        (set_, _set),
        (unset, _unset),
        (diff, _diff),
        (history, _history),
        (rollback, _rollback),
    )
    for sub, run in commands:
        add_job_options(sub)
        sub.set_defaults(run=run)
    for sub in (set_, unset, rollback):
        add_change_options(sub)


def _get(options: argparse.Namespace) -> int:
    from grete.config.keys import candidates, find_key
    from grete.config.redact import redact

    with opened_job(options) as handle:
        config = handle.config()
    shown = config if options.show_secrets else redact(config)
    if options.key is not None:
        if options.key not in config:
            known = find_key(options.key)
            default = "" if known is None or known.default is None else f"; its default is {known.default!r}"
            meant = did_you_mean(options.key, (*config, *candidates(options.key))) if known is None else ""
            raise ConfigError(f"{options.key} is not set{default or meant}")
        shown = {options.key: shown[options.key]}
    if options.output == "json":
        print_json(dict(sorted(shown.items())))
    elif options.key is not None:
        print(printable(shown[options.key]))
    else:
        for key, value in sorted(shown.items()):
            print(printable(f"{key}={value}"))
    return 0


def _schema(options: argparse.Namespace) -> int:
    from grete.config.json_schema import json_schema, properties_comments

    if options.properties:
        print(properties_comments(), end="")
    else:
        print_json(json_schema())
    return 0


def _assignments(words: list[str]) -> dict[str, str | None]:
    """`KEY VALUE`, as in Samza's writer, or any number of `KEY=VALUE`.

    Raises:
        ConfigError: neither; values are not repeated, which may be secrets.
    """
    from grete.config.load import parse_overrides

    if len(words) == 2 and "=" not in words[0]:
        return {words[0]: words[1]}
    try:
        return {**parse_overrides(words)}
    except ConfigError as error:
        lacking = f"{words[0]!r} has no value; " if len(words) == 1 and "=" not in words[0] else ""
        raise ConfigError(f"{lacking}{_SET_SYNTAX}") from error


def _set(options: argparse.Namespace) -> int:
    return _change(options, _assignments(options.assignments))


def _unset(options: argparse.Namespace) -> int:
    return _change(options, dict.fromkeys(options.keys))


def _change(options: argparse.Namespace, changes: dict[str, str | None]) -> int:
    with opened_job(options) as handle:
        done = change_config(handle, changes, reason=options.reason, force=options.force)
    print_changes(done.changes, options.output, done.old, done.new)
    return 0


def _diff(options: argparse.Namespace) -> int:
    from grete.config.derived import canonical_keys
    from grete.config.load import load
    from grete.config.rewriters import apply_rewriters
    from grete.config.settings import Settings
    from grete.metadata.coordinator_stream import ConfigChange

    files = [options.file] if options.file else options.config
    if not files:
        raise ConfigError("name the file to compare with, as FILE or --config FILE")
    new = Settings.of(canonical_keys(apply_rewriters(load(files, {}))))
    if not options.config and not options.job and new.job.written_id.name:
        options.config = files
    with opened_job(options) as handle:
        old = handle.config()
    keys = sorted(key for key in {*old, *new.raw} if old.get(key) != new.raw.get(key))
    changes = [ConfigChange(key, old.get(key), new.raw.get(key)) for key in keys]
    print_changes(changes, options.output, old, new.raw)
    return 0


def _rollback(options: argparse.Namespace) -> int:
    from grete.operations.configuration import roll_back_config

    with opened_job(options) as handle:
        old = handle.config()
        done = roll_back_config(handle, options.to, reason=options.reason, force=options.force)
        new = handle.config()
    print_changes(done, options.output, old, new)
    return 0


def _history(options: argparse.Namespace) -> int:
    with opened_job(options) as handle:
        generations = handle.config_generations()
    rows: list[dict[str, Any]] = []
    for generation in generations:
        values, origin = generation.message.values or {}, generation.message.origin
        rows.append(
            {
                "number": generation.number,
                "when": None if origin is None else utc_text(origin.timestamp_ms),
                "who": None if origin is None else f"{origin.username}@{values.get('hostname', origin.host)}",
                "source": None if origin is None else origin.source,
                "run_id": values.get("run-id"),
                "reason": values.get("reason", ""),
                "whole": generation.whole,
                "changes": list(shown_changes(generation.changes)),
            }
        )
    if options.output == "json":
        print_json(rows)
        return 0
    for row in rows:
        print(
            printable(
                "  ".join(str(row[name] or "-") for name in ("number", "when", "who", "source", "reason"))
            )
        )
        if not row["whole"]:
            print("    what is left of it, and of generations before it: the stream was compacted since")
        for change in row["changes"]:
            print(printable(f"    {change['key']}: {or_unset(change['old'])} -> {or_unset(change['new'])}"))
    return 0
