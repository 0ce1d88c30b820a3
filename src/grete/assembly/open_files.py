"""How many files and connections a process may have open."""

from __future__ import annotations

import resource

_WANTED = 65_536


def raise_open_files_limit() -> None:
    """As many as there may be, of this process and of those that it starts.

    The usual soft limit of 1,024 is reached by 300 tasks with stores, which have three files each.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
