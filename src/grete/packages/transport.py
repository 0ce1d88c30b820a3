"""A package on its way to other machines: as an archive, and unpacked once on each."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grete.config.settings.job import JobSettings
from grete.container.archive import prune, write_archive
from grete.errors import PackageError
from grete.packages.manifest import NAME, Manifest, is_package
from grete.packages.verify import opened, verify
from grete.private_files import private_directory, private_opener

_log = logging.getLogger("grete.container")
_KEPT = 3
_SHOWN = 3


def archive_name(manifest: Manifest) -> str:
    """Of the archive that is built beside a package's folder."""
    return f"grete-{manifest.kind}-{manifest.digest[:16]}.tgz"


def brought_package(job: JobSettings) -> Path | None:
    """The package that the application's environment is, and that is brought to where the application runs; None
    where it has no process of its own, or an environment that is no package and has to be there.
    """
    named = job.application_environment
    return Path(named) if job.is_isolated and named and is_package(Path(named)) else None


def archive_of(package: Path, manifest: Manifest, into: Path) -> Path:
    """The archive of a package's folder: that which was built beside it, else one that is made in `into`, once.

    It is what the manifest says: damage is found here, and not by each machine that it is brought to.

    Raises:
        PackageError: a file of the manifest cannot be read, or the package was damaged since it was built.
    """
    name = archive_name(manifest)
    built = package.parent / name
    archive = built if built.is_file() else _packed(package, manifest, into / name)
    if problems := verify(archive, digest=manifest.digest).problems:
        if archive != built:
            archive.unlink()  # one of its name is made again when the folder is as it should be
        raise PackageError(
            f"{package} was damaged since it was built, as its archive {archive} shows: "
            f"{'; '.join(problems[:_SHOWN])}; build it again"
        )
    return archive


def _packed(package: Path, manifest: Manifest, made: Path) -> Path:
    try:
        if not made.is_file():
            private_directory(made.parent)
            write_archive(made, [(each, package / each) for each in sorted([*manifest.files, NAME])])
        os.utime(made)
        prune(made.parent, "grete-*.tgz")
    except OSError as error:
        raise PackageError(f"{package} cannot be packed for other machines: {error}") from error
    return made


def brought(place: Path, digest: str, into: Path | None) -> Path:
    """The folder of a package that was brought to this machine: `place` is its archive, unpacked once below `into`,
    or without `into` the folder itself, unpacked by the cluster manager or from the image.

    Raises:
        PackageError: it cannot be unpacked there, or is not what was sent.
    """
    if into is not None:
        return unpack_once(place, digest, into)
    if problems := verify(place, digest=digest, may_all_be_executable=True).problems:
        raise PackageError(
            f"{place.resolve()} is not the package of the driver: {'; '.join(problems)}; on YARN the node has to "
            f"unpack it again, on Kubernetes the executors' image has to have it"
        )
    return place


def unpack_once(archive: Path, digest: str, into: Path) -> Path:
    """The folder of a package on this machine, unpacked below `into` by the first process that asks for it.

    Others wait for that one. The folder appears as a whole, and is what the manifest of this digest says: one that is
    there already is compared with it (0.1 s for an interpreter), and replaced if it was damaged. The folders that
    were used last stay, an older one is deleted.

    Raises:
        PackageError: the archive is not the package, or cannot be unpacked here.
    """
    folder = into / digest[:16]
    try:
        private_directory(into)
        with _alone(into / ".lock"):
            problems = verify(folder, digest=digest).problems if folder.is_dir() else ("is not there",)
            if problems and folder.is_dir():
                _log.warning("%s is damaged and unpacked again: %s", folder, "; ".join(problems[:_SHOWN]))
                _remove(folder)
            if problems:
                _unpack(archive, digest, folder)
            os.utime(folder)
            _prune(into)
    except OSError as error:
        raise PackageError(f"{archive} cannot be unpacked in {into}: {error}") from error
    return folder


def _unpack(archive: Path, digest: str, folder: Path) -> None:
    made = folder.with_name(f".{folder.name}.new")  # of a process that was killed meanwhile, perhaps
    shutil.rmtree(made, ignore_errors=True)
    try:
        # the archive first: a folder may have Python's caches, which would run instead of the modules beside them
        problems = verify(archive, digest=digest).problems
        if not problems:
            with opened(archive) as content:
                content.extractall(made, filter="data")
            problems = verify(made, digest=digest).problems
        if problems:
            raise PackageError(
                f"{archive} is not the package that was sent, or was damaged on its way: "
                f"{'; '.join(problems[:_SHOWN])}; build it again, or see whether the disk of this machine is sound"
            )
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Let it be gone at once; a process that runs in it keeps what it has open."""
    aside = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _prune(into: Path) -> None:
    folders = [path for path in into.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for old in sorted(folders, key=lambda path: path.stat().st_mtime_ns, reverse=True)[_KEPT:]:
        _remove(old)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with open(path, "wb", opener=private_opener) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go of by the system when its process ends, however it does
        yield
