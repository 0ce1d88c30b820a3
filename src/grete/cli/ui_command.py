"""`grete ui`."""

from __future__ import annotations

import argparse
import sys
import threading
import webbrowser

from grete.cli.options import add_common_options, count
from grete.cli.output import print_json_line

_PORTS = 65_535


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common_options(parser)
    parser.add_argument(
        "--port", type=lambda text: count(text, _PORTS), default=0, help="by default a free one"
    )
    parser.add_argument("--open", action="store_true", help="open the pages in this machine's browser")
    parser.add_argument("--read-only", action="store_true", help="pages on which nothing can be changed")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve pages of all jobs of the home until it is interrupted."""
    from grete.environment import grete_home
    from grete.pages.serve import serve_pages

    with serve_pages(grete_home(), options.port, may_write=not options.read_only) as pages:
        link = pages.link()
        if options.output == "json":
            print_json_line({"url": pages.url, "link": link})
        else:
            print(f"{pages.url}\nsign in within a minute, once: {link}")
        if options.open:
            webbrowser.open(link)
        sys.stdout.flush()
        if sys.stdin.isatty() and options.output != "json":
            print("Enter gives a new link, Ctrl-C ends")
            for _ in sys.stdin:
                print(pages.link(), flush=True)
        threading.Event().wait()
    return 0
