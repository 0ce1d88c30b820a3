"""Runs on executors before anything of grete does: it says what is there. Sent as code, and imports no package of
ours.

Where grete is missing, a function of grete could not even be read. So this module holds plain functions of the
standard library, which `preflight` sends by value.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

_CONNECT_S = 3.0


def probe(asked: dict[str, Any]) -> dict[str, Any]:
    """This process's host, working folder, Python, packages and the rest of what was asked for, in plain values."""
    return {
        "host": socket.gethostname(),
        "place": os.getcwd(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "code": code_of("grete"),
        "packages": packages(),
        "unreachable": [name for name, host, port in asked["brokers"] if not reaches(host, port)],
        "folder": folder_problem(asked["folder"]),
    }


def held(seconds: float, result: dict[str, Any]) -> dict[str, Any]:
    """The result, some time later: a task that ends at once would leave its executor to the next one."""
    time.sleep(seconds)
    return result


def packages() -> dict[str, str]:
    """Every installed distribution and its version."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        name = one.metadata["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), one.version)
    return found


def code_of(package: str) -> str:
    """A hash of a package's modules; empty where it cannot be imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return ""  # a folder without modules looks like a package
    top, digest = Path(next(iter(spec.submodule_search_locations))), hashlib.sha256()
    for path in sorted(top.rglob("*.py")):
        digest.update(path.relative_to(top).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def reaches(host: str, port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError:
        return False
    return True


def folder_problem(folder: str | None) -> str:
    """Why files cannot be written in a folder, which is made; empty where they can."""
    if folder is None:
        return ""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        return str(error)
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} may not be written"


def shares(folder: str, mark: str) -> dict[str, Any]:
    """Whether this process sees the driver's mark in a folder; it leaves one of its own beside it."""
    own = f"{mark}-{os.getpid()}-{time.time_ns()}"
    problem = (
        "" if os.path.exists(os.path.join(folder, mark)) else "it does not see what the driver writes there"
    )
    if not problem:
        try:
            with open(os.path.join(folder, own), "x", encoding="ascii") as file:
                file.write(own)
        except OSError as error:
            problem = f"it cannot write there: {error}"
    return {"host": socket.gethostname(), "place": os.getcwd(), "own": own, "problem": problem}
