"""`grete stream write|dump|tail|append|create|grow|quarantine|list`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from grete.cli import stream_append, stream_dump, stream_grow, stream_quarantine
from grete.cli.config_change import add_change_options, change_config, print_changes
from grete.cli.options import add_job_options, count, opened_job
from grete.cli.output import print_json, print_table
from grete.cli.stream_system import (
    EMBEDDED,
    new_stream_name,
    opened_system,
    partition_count,
    stream_name,
)
from grete.errors import ConfigError, StreamNotFound

if TYPE_CHECKING:
    from grete.systems.base import System


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    _declare_write(actions.add_parser("write", help="write a message to a job's coordinator stream"))
    for name, summary, run in (
        ("dump", "every record of a job's coordinator stream, or of a stream", stream_dump.dump),
        ("tail", "the last records, and with -f what comes", stream_dump.tail),
    ):
        _declare_reading(actions.add_parser(name, help=summary), run is stream_dump.tail)
        actions.choices[name].set_defaults(run=run)
    _declare_append(actions.add_parser("append", help="append records to a stream, from JSON lines"))
    create = actions.add_parser("create", help="create a stream")
    create.add_argument("stream", type=new_stream_name, help="system.stream")
    create.add_argument("--partitions", type=partition_count, default=1, help="how many it has")
    create.add_argument("--compacted", action="store_true", help="keep only the last record of each key")
    create.add_argument(
        "--dev", action="store_true", help="one copy of it where the files of --config say none"
    )
    add_job_options(create)
    create.set_defaults(run=_create)
    stream_grow.declare(actions.add_parser("grow", help="add partitions to a stream"))
    quarantine = actions.add_parser(
        "quarantine", help="records of a coordinator stream that are not understood"
    )
    stream_quarantine.declare(quarantine)
    list_ = actions.add_parser("list", help="the streams of a system")
    list_.add_argument(
        "system", nargs="?", default=EMBEDDED, help="by the name that the configuration gives it"
    )
    add_job_options(list_)
    list_.set_defaults(run=_list)


def _declare_write(parser: argparse.ArgumentParser) -> None:
    add_job_options(parser)
    parser.add_argument("--type", default="set-config", help="set-config, as in Samza's writer")
    parser.add_argument("--key", required=True, help="of the message")
    parser.add_argument("--value", required=True, help="of the message")
    add_change_options(parser)
    parser.set_defaults(run=_write)


def _declare_reading(parser: argparse.ArgumentParser, is_tail: bool) -> None:
    add_job_options(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "stream",
        type=stream_name,
        nargs="?",
        metavar="STREAM",
        help="system.stream instead of the coordinator stream",
    )
    what.add_argument(
        "--stream", type=stream_name, dest="named_stream", metavar="STREAM", help="the same as STREAM"
    )
    what.add_argument("--log", help="a keyed log beside the streams, such as a job's checkpoints")
    if is_tail:
        parser.add_argument("-n", type=count, default=10, help="how many records of each partition (10)")
        parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    parser.add_argument("--partition", type=int, help="only this partition of a stream")
    parser.add_argument("--raw", action="store_true", help="key and value in hex")


def _declare_append(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", type=stream_name, help="system.stream")
    add_job_options(parser)
    parser.add_argument("--from-file", default="-", metavar="FILE", help="instead of standard input")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--key-field", metavar="FIELD", help="a line is a value; its key is this field of it")
    form.add_argument("--lines", action="store_true", help="a line is a value without a key")
    parser.add_argument("--batch", type=count, default=20_000, help="records made durable together (20000)")
    parser.set_defaults(run=stream_append.append)


def _write(options: argparse.Namespace) -> int:
    if options.type.lower() != "set-config":
        raise ConfigError(f"--type {options.type!r}: only set-config can be written by hand")
    with opened_job(options) as handle:
        done = change_config(handle, {options.key: options.value}, reason=options.reason, force=options.force)
    print_changes(done.changes, options.output, done.old, done.new)
    return 0


def _create(options: argparse.Namespace) -> int:
    from grete.model.streams import StreamSpec

    name, spec = options.stream, StreamSpec(options.stream.stream, options.partitions, options.compacted)
    with opened_system(options, name.system, must_exist=False) as system:
        is_new = not _exists(system, name.stream)
        system.create_stream(spec)
    if options.output == "json":
        # of one that is there its partitions are known to be so many, and no more
        shape = {"partitions": spec.partitions, "compacted": spec.compacted if is_new else None}
        print_json({"stream": str(name), **shape, "created": is_new})
        return 0
    partitions = f"{spec.partitions:,} partition{'' if spec.partitions == 1 else 's'}"
    compacted = ", compacted" if spec.compacted and is_new else ""
    print(f"{name}: {'created' if is_new else 'is there already'} with {partitions}{compacted}")
    return 0


def _exists(system: System, stream: str) -> bool:
    try:
        system.partition_count(stream)
    except StreamNotFound:
        return False
    return True


def _list(options: argparse.Namespace) -> int:
    rows = []
    with opened_system(options, options.system) as system:
        for stream in system.streams():
            offsets = system.offsets(stream)
            rows.append(
                {
                    "stream": f"{options.system}.{stream}",
                    "partitions": len(offsets),
                    "records": sum(int(o.upcoming) - int(o.oldest or o.upcoming) for o in offsets.values()),
                    "compacted": system.is_compacted(stream),
                }
            )
    if options.output == "json":
        print_json(rows)
    else:
        print_table(
            ("stream", "partitions", "records", ""),
            [
                (r["stream"], r["partitions"], r["records"], "compacted" if r["compacted"] else " ")
                for r in rows
            ],
        )
    return 0
