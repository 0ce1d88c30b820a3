"""kill -9 while a damaged store file is rebuilt from its changelog: the next one who opens it rebuilds it again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grete.testing.waiting import patient

pytestmark = pytest.mark.fault

EXECUTOR = """
import sys, zlib
from pathlib import Path
import apsw
from grete.tasks.stores.file import StoreFile

path, damages = Path(sys.argv[1]), sys.argv[2] == "damage"
changelog = [(b"key%d" % (n % 50), b"%d" % n if n % 7 else None) for n in range(1_000)]
file = StoreFile(path, "changelog")
if damages:
    file.settle(900, "", lambda start, end: changelog[start:end], lambda data: ())
    file.set_pending("committed", 1_000, b"the pending changes")
    with apsw.Connection(str(path)) as other:
        other.execute("UPDATE pending SET crc = crc + 1")
else:
    file.settle(1_000, "committed", lambda start, end: changelog[start:end], lambda data: ())
    expected = dict(changelog)
    assert dict(file.scan(None, None)) == {k: v for k, v in expected.items() if v is not None}
    assert file.position == 1_000
"""


@pytest.mark.parametrize("point", ["store.rebuilding", "store.refilled", "store.created"])
def test_killed_while_a_damaged_store_is_rebuilt(tmp_path: Path, point: str) -> None:
    program, died = tmp_path / "executor.py", tmp_path / "died"
    program.write_text(EXECUTOR)
    died.mkdir()

    def run(what: str, **environment: str) -> int:
        command = [sys.executable, str(program), str(tmp_path / "store.db"), what]
        return subprocess.run(command, env={**os.environ, **environment}, timeout=patient(60)).returncode

    assert run("damage") == 0
    kills = {"GRETE_FAILPOINT": f"{point}:kill,{point}:kill", "GRETE_FAILPOINT_ONCE": str(died)}
    codes = [run("use", **kills) for _ in range(3)]
    assert codes[0] == -signal.SIGKILL
    assert len(list(died.iterdir())) == codes.count(-signal.SIGKILL)
    assert codes[-1] == 0
    assert run("use") == 0
