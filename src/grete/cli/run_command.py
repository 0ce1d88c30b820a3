"""`grete run`."""

from __future__ import annotations

import argparse
import logging
import sys
import threading

from grete.cli.options import parse_set


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", action="append", default=[], help="configuration file; may be repeated")
    parser.add_argument("--job", help="run a job again from its coordinator stream: NAME or NAME:ID")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key")
    parser.add_argument("--until-drained", action="store_true", help="end when what is there is consumed")
    parser.add_argument("--take-over", action="store_true", help="fence a holder that hangs")
    parser.add_argument("--reason", default="", help="recorded in the history")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the job in the foreground."""
    from grete.assembly import RunOptions, run_job
    from grete.assembly.home import parse_job
    from grete.assembly.view import View

    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    done = threading.Event()
    threads: list[threading.Thread] = []

    def on_view(view: View) -> None:
        if not options.quiet:
            thread = threading.Thread(target=_show, args=(view, done), name="progress", daemon=True)
            thread.start()
            threads.append(thread)

    try:
        return run_job(
            RunOptions(
                config_paths=options.config,
                overrides=parse_set(options.set),
                job=parse_job(options.job) if options.job else None,
                until_drained=options.until_drained,
                take_over=options.take_over,
                reason=options.reason,
            ),
            on_view,
        )
    finally:
        done.set()
        for thread in threads:
            thread.join(timeout=2)


def _show(view: object, done: threading.Event) -> None:
    from grete.assembly.view import View

    assert isinstance(view, View)
    name = view.job()["job"]["name"]
    shown = ""
    while True:
        ended = done.wait(1.0)
        for container, body in sorted(view.progress().items()):
            where = f"{name} container {container}"
            line = f"{where}: {body['state']}, batch {body['batch_id']}, {body['records']:,} records"
            if line != shown:
                print(line, file=sys.stderr, flush=True)
                shown = line
        if ended:
            return
