"""An application's environment with a client of Spark Connect that is older than the Spark that runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from grete.packages.build import Built, build_application

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "grete")
WHEELS = Path(os.environ.get("GRETE_APPLICATION_WHEELS", CACHE / "application-wheels"))
NEWER_WHEELS = Path(os.environ.get("GRETE_CLIENT_WHEELS", CACHE / "client-wheels"))
"""A folder for each newer version; fetched by night."""
LOCKS = Path(__file__).parents[2] / "scripts" / "packages"
_INSTALLED = ("numpy", "pandas", "pyarrow", "python-dateutil", "pytz", "tzdata")
_LEFT_OUT = {"__pycache__", "include", "tests"}
SHARED = ("dateutil", "numpy", "numpy.libs", "pandas", "pandas.libs", "pyarrow", "pytz", "six.py", "tzdata")
"""What Spark Connect needs beside the wheels: of the framework's versions, since they are large."""


def environment_of_a_client(folder: Path, wheels: Path = WHEELS) -> Path:
    """The folder, made an environment with the client and other versions of the framework's packages."""
    assert wheels.is_dir(), f"no wheels in {wheels}: make services"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    for wheel in wheels.glob("*.whl"):
        shutil.unpack_archive(wheel, packages, "zip")
    [client] = wheels.glob("pyspark_client-*.tar.gz")
    with tarfile.open(client) as archive:
        archive.extractall(folder / "client", filter="data")
    [modules] = folder.glob("client/*/pyspark")
    modules.rename(packages / "pyspark")
    import pyarrow

    own = Path(pyarrow.__file__).parents[1]
    for name in SHARED:
        if (own / name).exists():
            (packages / name).symlink_to(own / name)
    return folder


def package_of_a_client(folder: Path, modules: Path) -> Built:
    """As `grete package build` makes it, with the client and what it needs. Its wheels are in the folder as well, and
    no registry is asked.
    """
    wheels, lock = folder / "wheels", folder / "lock.txt"
    wheels.mkdir(parents=True)
    made = [_wheel_of(name, wheels) for name in _INSTALLED]
    locked = (LOCKS / "connect.txt").read_text()
    orjson = (LOCKS / "application.txt").read_text().partition("\nprotobuf")[0]
    lock.write_text("\n".join([locked, orjson, *made]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", f"{WHEELS} {wheels}")
        return build_application(folder / "packages", lock, Path(sys.executable), modules)


def _wheel_of(name: str, into: Path) -> str:
    """A wheel of what is installed here, without its tests; the line of a lock for it."""
    found = distribution(name)
    kind = found.read_text("WHEEL") or ""
    *_, tag = (line.partition(": ")[2] for line in kind.splitlines() if line.startswith("Tag: "))
    wheel = into / f"{name.replace('-', '_')}-{found.version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in found.files or ():
            if not _LEFT_OUT & set(file.parts) and ".." not in file.parts:
                archive.write(file.locate(), str(file))
    with wheel.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return f"{name}=={found.version} --hash=sha256:{digest}"
