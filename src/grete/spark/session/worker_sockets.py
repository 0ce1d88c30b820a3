"""Unix sockets between Spark's JVM and the Python processes of this machine, in a folder of this process's own.

Over TCP, Spark's default, each Spark task with Python waits for 40 ms: the JVM sends its task in small pieces, the
next of which its system holds back until the one before is confirmed, and the worker, which has nothing to say yet,
confirms it after Linux's delay. An empty `mapInArrow` took 63 ms over TCP and 21 ms so.

Spark asks nobody for a secret on such a socket, so its folder lets nobody else in.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from grete.environment import WORKER_SOCKETS

_ENABLED = "spark.python.unix.domain.socket.enabled"
_FOLDER = "spark.python.unix.domain.socket.dir"
_LONGEST = 60
"""A socket's path has 107 bytes at most; Spark's names have 42."""
_EVERYWHERE = "/tmp"  # noqa: S108 - the folder in it is ours alone


def socket_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings by which a JVM talks so; none where the job says how, or there is no folder with a short path."""
    folder = None if {_ENABLED, _FOLDER} & settings.keys() else _folder()
    return {} if folder is None else {_ENABLED: "true", _FOLDER: str(folder)}


def make_folder(settings: Mapping[str, str], jvm: Any) -> None:
    """Make the folder that `socket_settings` has named, before a context begins, in whoever's JVM.

    The JVM removes it at its end, and so does this process: one of the two may be killed.

    Raises:
        OSError: it cannot be made.
    """
    folder = _folder()
    if folder is None or settings.get(_FOLDER) != str(folder):
        return
    if not folder.exists():  # nobody else knows its name
        folder.mkdir(mode=0o700)
        atexit.register(remove_folder)
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))


def remove_folder() -> None:
    """Nobody in this process needs it any more; one that was named for several processes stays."""
    if WORKER_SOCKETS not in os.environ and (folder := _folder()) is not None:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _folder() -> Path | None:
    if named := os.environ.get(WORKER_SOCKETS):  # a JVM goes on with the first that it was told
        return Path(named)
    return new_folder()


def new_folder() -> Path | None:
    """A name that nobody else knows; None where no path is short enough."""
    places = (place for place in (tempfile.gettempdir(), _EVERYWHERE) if os.access(place, os.W_OK | os.X_OK))
    named = (Path(place).resolve() / f"grete-{uuid.uuid4().hex[:16]}" for place in places)
    return next((folder for folder in named if len(os.fsencode(folder)) <= _LONGEST), None)
