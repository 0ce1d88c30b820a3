"""Requirements on the machine: a SQLite build and a file system that keep the promises."""

from __future__ import annotations

from pathlib import Path

from grete.errors import UnsafeStorage
from grete.private_files import private_directory, sync_directory

FIRST_SAFE_WAL = (3, 51, 3)
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"}
    | {"orangefs", "vboxsf", "prl_fs", "fuse"}
)
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs"})
"""FUSE is refused unless known to be local: sshfs, s3fs, rclone, blobfuse and Databricks' /dbfs are all FUSE."""


def is_wal_safe(version: str) -> bool:
    """Whether several processes may use a write-ahead log with this SQLite (fault 25)."""
    return tuple(int(part) for part in version.split(".")) >= FIRST_SAFE_WAL


def check_file(path: Path) -> None:
    """Refuse a place where SQLite's locks do not hold (fault 24).

    Raises:
        UnsafeStorage: a network file system, or a file with a second name.
    """
    kind = network_file_system(path.parent, _mounts())
    if kind is not None:
        raise UnsafeStorage(
            f"{path.parent} is on a network file system ({kind}), where SQLite's locks do not hold; "
            f"choose a local directory (GRETE_HOME or systems.<name>.path)"
        )
    if path.is_file() and path.stat().st_nlink > 1:
        raise UnsafeStorage(
            f"{path} is a hard link: a process that opens its other name has a write-ahead log of its own; "
            f"copy the file instead"
        )


def network_file_system(directory: Path, mounts: str) -> str | None:
    """The network file system that holds the directory, None when it is a local one.

    `mounts` is the text of /proc/self/mounts; empty where there is none.
    """
    target = str(directory.resolve())
    best, kind = "", ""
    for line in mounts.splitlines():
        _, point, name, *_ = [*line.split(" "), "", "", ""]
        point = point.replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    refused = kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)
    return kind if refused else None


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def make_directory(directory: Path) -> None:
    """Create the directory and its parents, durably."""
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    if missing:
        private_directory(directory)
    for folder in missing:
        sync_directory(folder.parent)


def write_lock_holder(path: Path) -> int | None:
    """The process that holds the write lock of a file in WAL mode, None when unknown.

    Read from /proc/locks: opening the -shm file ourselves and closing it again would give up every lock that this
    process holds on it (POSIX locks belong to the process, not to the descriptor).
    """
    try:
        inode = str(path.with_name(f"{path.name}-shm").stat().st_ino)
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if "->" not in fields and fields[5].rpartition(":")[2] == inode and fields[6] == _WRITE_LOCK_BYTE:
            return int(fields[4])
    return None


_WRITE_LOCK_BYTE = "120"  # WAL_WRITE_LOCK in SQLite's WAL format, part of the file format
