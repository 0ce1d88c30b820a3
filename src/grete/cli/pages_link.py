"""The address of a job's pages, which its coordinator serves."""

from __future__ import annotations

import contextlib
from pathlib import Path

from grete.clock import SystemClock


def pages_link(url: str | None, token_file: str | None) -> str | None:
    """One that signs a browser in, once, with what may be read of the tokens; None where no coordinator serves them.

    `url` and `token_file` are those of the coordinator, as the job's state has them.
    """
    from grete.server.rights import Right, TokenFiles, one_time_code

    if not url or not token_file:
        return None
    files = TokenFiles.of(Path(token_file).parent)
    for right, path in ((Right.WRITE, files.write), (Right.READ, files.read)):
        with contextlib.suppress(OSError):
            return f"{url}/ui/sign-in?code={one_time_code(right, path.read_text('ascii'), SystemClock())}"
    return f"{url}/ui/"
