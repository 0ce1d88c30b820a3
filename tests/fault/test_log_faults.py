"""The embedded log when process, disk and bits fail. Acknowledged and lost: 0. Silently wrong: 0."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grete.clock import SystemClock
from grete.errors import Fenced, GreteError, InDoubt, LogError
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.sqlite_file import open_file
from grete.testing.waiting import patient

pytestmark = pytest.mark.fault

NIGHTLY = os.environ.get("GRETE_NIGHTLY") == "1"
WRITER = """
import sys
from pathlib import Path
from grete.clock import SystemClock
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.sqlite_file import open_file
path, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
log = SqliteKeyedLog(open_file(path), "log", SystemClock())
for number in range(first, first + count):
    log.append([Entry(b"a%d" % number, b"x" * 200), Entry(b"b%d" % number, b"y")])
    print(number, flush=True)
import time
time.sleep(0 if count == 6 else 60)
"""


def open_log(path: Path) -> SqliteKeyedLog:
    return SqliteKeyedLog(open_file(path), "log", SystemClock())


def numbers(path: Path) -> list[int]:
    """The appends that are there, each checked to be whole."""
    records = list(open_log(path).read())
    assert [record.key[:1] for record in records] == [b"a", b"b"] * (len(records) // 2)
    firsts, seconds = [[int(r.key[1:]) for r in records[i::2]] for i in (0, 1)]
    assert firsts == seconds
    return firsts


def writer(path: Path, first: int, count: int, *before: str) -> subprocess.Popen[str]:
    command = [*before, sys.executable, "-c", WRITER, str(path), str(first), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_killed_at_random_what_was_acknowledged_is_there_once(tmp_path: Path) -> None:
    path, chance, following = tmp_path / "log.db", random.Random(7), 0
    for _ in range(200 if NIGHTLY else 25):
        process = writer(path, following, 10_000)
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 30)):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()  # communicate() with two pipes leaves out what readline() has read ahead
        process.communicate()
        acknowledged = max([acknowledged, *(int(line) for line in rest.split())])
        present = numbers(path)
        assert present == sorted(set(present)), "something is there twice or out of order"
        assert acknowledged in (len(present) - 1, len(present) - 2), "lost, or more than one unacknowledged"
        following = len(present)


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_killed_at_every_write_and_sync_nothing_is_lost_or_torn(tmp_path: Path, call: str) -> None:
    for nth in range(1, 200):
        path = tmp_path / f"{call}{nth}.db"
        inject = f"inject={call}:signal=SIGKILL:when={nth}"
        process = writer(path, 0, 6, "strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
        out, _ = process.communicate(timeout=patient(120))
        acknowledged = len(out.split())
        present = numbers(path)
        assert present == list(range(len(present)))
        assert acknowledged <= len(present) <= acknowledged + 1, f"{call} {nth}"
        if acknowledged == 6:
            assert nth > 3, "nothing was injected"
            return
    raise AssertionError(f"more than 200 calls of {call}")


def test_an_error_of_fdatasync_is_in_doubt_and_never_tried_again(tmp_path: Path) -> None:
    for nth in range(1, 30 if NIGHTLY else 12):
        path = tmp_path / f"{nth}.db"
        inject = f"inject=fdatasync:error=EIO:when={nth}"
        process = writer(path, 0, 6, "strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", inject)
        out, errors = process.communicate(timeout=patient(120))
        acknowledged, present = len(out.split()), numbers(path)
        assert acknowledged <= len(present) <= acknowledged + 1
        if acknowledged < 6:
            assert "InDoubt" in errors or "LogError" in errors, errors


def test_a_full_disk_is_an_error_and_everything_before_is_there(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    open_log(path).append([])
    inject = "inject=pwrite64:error=ENOSPC:when=60+"
    process = writer(path, 0, 10_000, "strace", "-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", inject)
    out, errors = process.communicate(timeout=patient(120))
    acknowledged = len(out.split())
    assert 0 < acknowledged < 10_000
    assert process.returncode != 0
    assert "StorageFull" in errors, errors
    present = numbers(path)
    assert len(present) - acknowledged in (0, 1)
    open_log(path).append([Entry(b"more", b"room")])


def test_a_disk_that_is_full_where_the_log_is_opened_is_one_that_may_have_room_later(tmp_path: Path) -> None:
    """SQLite makes the index of its write-ahead log then, and calls that an I/O error."""
    path = tmp_path / "log.db"
    assert writer(path, 0, 6).communicate(timeout=patient(120))[0].split() == list("012345")
    inject = "inject=pwrite64:error=ENOSPC:when=1+"
    process = writer(path, 6, 6, "strace", "-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", inject)
    _, errors = process.communicate(timeout=patient(120))
    assert "StorageFull" in errors, errors
    assert "(open)" in errors
    assert numbers(path) == list(range(6))


URGENT = """
import sys
from pathlib import Path
from grete.clock import SystemClock
from grete.keyed_log.base import Entry, Fence
from grete.keyed_log.sqlite import SqliteKeyedLog
from grete.sqlite_file import open_file
log = SqliteKeyedLog(open_file(Path(sys.argv[1])), "log", SystemClock())
log.append_urgently([Entry(b"stop", b"x" * 5000)], fence=Fence("job", 1))
"""


def test_on_a_full_disk_what_ends_a_job_is_written_from_the_reserve(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    open_log(path).append([Entry(b"before", b"")])
    reserve = Path(f"{path}.reserve")
    whole = reserve.stat().st_size
    full = ["-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC:when=1..2"]
    subprocess.run(["strace", *full, sys.executable, "-c", URGENT, str(path)], check=True, timeout=60)
    assert 0 < reserve.stat().st_size < whole, "the space was not set free, or all of it at once"
    assert [record.key for record in open_log(path).read()] == [b"before", b"stop"]
    assert reserve.stat().st_size == whole, "with space again, the reserve is whole again"


def fill(path: Path, count: int = 60) -> None:
    """Append, then die: so the write-ahead log stays as it is, instead of being folded in at closing."""
    process = writer(path, 0, count)
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline()
    process.kill()
    process.communicate()


def copy_of(source: Path, directory: Path) -> Path:
    """The file with its write-ahead log and mark, as a running process has them on disk."""
    directory.mkdir()
    for suffix in ("", "-wal", ".mark"):
        if Path(f"{source}{suffix}").exists():
            shutil.copy(f"{source}{suffix}", f"{directory / source.name}{suffix}")
    return directory / source.name


def test_a_flipped_bit_is_found_or_leaves_what_was_written(tmp_path: Path) -> None:
    source = tmp_path / "source" / "log.db"
    source.parent.mkdir()
    fill(source)
    chance = random.Random(11)
    outcomes = {"whole": 0, "found": 0}
    for number in range(2_000 if NIGHTLY else 150):
        path = copy_of(source, tmp_path / str(number))
        target = Path(f"{path}-wal") if number % 2 else path
        data = bytearray(target.read_bytes())
        position = chance.randrange(len(data))
        data[position] ^= 1 << chance.randrange(8)
        target.write_bytes(bytes(data))
        try:
            assert numbers(path) == list(range(60)), (
                f"silently wrong: bit in byte {position} of {target.name}"
            )
            outcomes["whole"] += 1
        except GreteError:
            outcomes["found"] += 1
        shutil.rmtree(path.parent)
    assert min(outcomes.values()) > 0, outcomes


def test_a_write_ahead_log_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "source" / "log.db"
    source.parent.mkdir()
    fill(source)
    length = Path(f"{source}-wal").stat().st_size
    assert length > 0
    for number, keep in enumerate(range(0, length, length // 40)):
        path = copy_of(source, tmp_path / str(number))
        with Path(f"{path}-wal").open("rb+") as wal:
            wal.truncate(keep)
        with pytest.raises(GreteError, match="commit"):
            numbers(path)


def test_an_old_copy_in_the_files_place_is_refused_until_the_operator_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    fill(path, 5)
    old = copy_of(path, tmp_path / "backup")
    fill(path, 5)
    for suffix in ("", "-wal"):
        if Path(f"{old}{suffix}").exists():
            shutil.copy(f"{old}{suffix}", f"{path}{suffix}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    with pytest.raises(LogError, match="remove"):
        open_log(path)
    Path(f"{path}.mark").unlink()
    assert open_log(path).end() == 9


def test_a_writer_that_was_fenced_while_paused_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log, successor = open_log(path), open_log(path)
    log.append([Entry(b"k", b"first")], fence=Fence("job", 1))
    successor.raise_fence(Fence("job", 2))
    with pytest.raises(Fenced):
        log.append([Entry(b"k", b"late")], fence=Fence("job", 1))
    assert [record.value for record in successor.read()] == [b"first"]


def test_in_doubt_is_an_error_of_the_log() -> None:
    assert issubclass(InDoubt, LogError)
