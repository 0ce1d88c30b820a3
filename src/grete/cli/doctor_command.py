"""`grete doctor`: what this machine lacks, each with the way out."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from grete.cli.options import print_json
from grete.errors import GreteError


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result."""

    check: str
    ok: bool
    found: str
    way_out: str = ""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run every check; exit 1 when one fails."""
    findings = [check() for check in _CHECKS]
    if options.output == "json":
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.check}: {finding.found}")
            if not finding.ok:
                print(f"      {finding.way_out}")
    return 0 if all(finding.ok for finding in findings) else 1


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _java() -> Finding:
    way_out = "install Java 17 or newer and put it on PATH (or set JAVA_HOME)"
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        return Finding("java", False, "not found", way_out)
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("java", False, str(error), way_out)
    match = re.search(r'version "(\d+)', shown.stderr)
    return Finding("java", match is not None and int(match[1]) >= 17, shown.stderr.split("\n")[0], way_out)


def _sqlite() -> Finding:
    import apsw

    version = apsw.sqlite_lib_version()
    safe = tuple(map(int, version.split("."))) >= (3, 51, 3)
    return Finding("sqlite", safe, version, "install apsw >= 3.54: older builds can corrupt a WAL database")


def _packages() -> Finding:
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    found = f"missing: {', '.join(missing)}" if missing else "pyspark, pyarrow, pandas"
    return Finding("spark extra", not missing, found, "pip install 'grete[spark]'")


def _worker_python() -> Finding:
    named = os.environ.get("PYSPARK_PYTHON")
    same = named is None or Path(named).resolve() == Path(sys.executable).resolve()
    found = named or f"not set: executors run {sys.executable}"
    return Finding("PYSPARK_PYTHON", same, found, f"unset it or set it to {sys.executable}")


def _home() -> Finding:
    from grete.assembly import grete_home
    from grete.sqlite_file import open_file

    home = grete_home()
    probe = home / "doctor" / "probe.db"
    try:
        open_file(probe).close()
    except (GreteError, OSError) as error:
        return Finding("GRETE_HOME", False, f"{home}: {error}", "choose a local folder you can write to")
    finally:
        shutil.rmtree(probe.parent, ignore_errors=True)
    free_mb = shutil.disk_usage(home).free // 2**20
    return Finding("GRETE_HOME", free_mb >= 200, f"{home}, {free_mb:,} MB free", "free some space")


_CHECKS: tuple[Callable[[], Finding], ...] = (_python, _java, _sqlite, _packages, _worker_python, _home)
