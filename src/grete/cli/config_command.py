"""`grete config get|set|unset|diff|history`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from grete.cli.options import add_job_options, opened_job, print_json, print_table
from grete.errors import ConfigError


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    get = actions.add_parser("get", help="one key, or all of them with secrets masked")
    get.add_argument("key", nargs="?")
    set_ = actions.add_parser("set", help="set a key")
    set_.add_argument("key")
    set_.add_argument("value")
    unset = actions.add_parser("unset", help="remove a key")
    unset.add_argument("key")
    diff = actions.add_parser("diff", help="what a file would change")
    diff.add_argument("file")
    history = actions.add_parser("history", help="who changed what, when and why")
    for sub, run in ((get, _get), (set_, _set), (unset, _unset), (diff, _diff), (history, _history)):
        add_job_options(sub)
        sub.set_defaults(run=run)
    for sub in (set_, unset):
        sub.add_argument("--reason", default="", help="recorded with the change")
        sub.add_argument("--force", action="store_true", help="skip validation and the set-once guard")


def _get(options: argparse.Namespace) -> int:
    from grete.config.redact import redact, redact_value

    with opened_job(options) as handle:
        config = handle.config()
    if options.key is not None:
        if options.key not in config:
            raise ConfigError(f"{options.key} is not set")
        print(redact_value(options.key, config[options.key]))
    elif options.output == "json":
        print_json(redact(config))
    else:
        for key, value in sorted(redact(config).items()):
            print(f"{key}={value}")
    return 0


def _set(options: argparse.Namespace) -> int:
    return _change(options, options.value)


def _unset(options: argparse.Namespace) -> int:
    return _change(options, None)


def _change(options: argparse.Namespace, value: str | None) -> int:
    with opened_job(options) as handle:
        changes = handle.set_config({options.key: value}, reason=options.reason, force=options.force)
    if not changes:
        print("nothing to change")
    for change in changes:
        print(f"{change.key}: {_shown(change.key, change.old)} -> {_shown(change.key, change.new)}")
    return 0


def _diff(options: argparse.Namespace) -> int:
    from grete.config.load import config_path, load_file

    new = load_file(config_path(options.file))
    with opened_job(options) as handle:
        old = handle.config()
    changes = {
        key: {"old": _shown(key, old.get(key)), "new": _shown(key, new.get(key))}
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    }
    if options.output == "json":
        print_json(changes)
    else:
        print_table(("key", "now", "in the file"), [(k, c["old"], c["new"]) for k, c in changes.items()])
    return 0


def _shown(key: str, value: str | None) -> str:
    from grete.config.redact import redact_value

    return "(not set)" if value is None else redact_value(key, value)


def _history(options: argparse.Namespace) -> int:
    with opened_job(options) as handle:
        generations = handle.config_history()
    rows = [
        {
            "when": "-" if m.origin is None else _when(m.origin.timestamp_ms),
            "who": "-" if m.origin is None else f"{m.origin.username}@{(m.values or {}).get('hostname', '')}",
            "source": "-" if m.origin is None else m.origin.source,
            "run_id": (m.values or {}).get("run-id", ""),
            "reason": (m.values or {}).get("reason", ""),
            "changes": [
                {"key": c.key, "old": _shown(c.key, c.old), "new": _shown(c.key, c.new)} for c in changes
            ],
        }
        for m, changes in generations
    ]
    if options.output == "json":
        print_json(rows)
        return 0
    for row in rows:
        print(f"{row['when']}  {row['who']}  {row['source']}  {row['reason']}")
        for change in row["changes"]:
            print(f"    {change['key']}: {change['old']} -> {change['new']}")
    return 0


def _when(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
