"""An application's environment with a client of Spark Connect that is older than the Spark that runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "grete")
WHEELS = Path(os.environ.get("GRETE_APPLICATION_WHEELS", CACHE / "application-wheels"))
SHARED = ("dateutil", "numpy", "numpy.libs", "pandas", "pandas.libs", "pyarrow", "pytz", "six.py", "tzdata")
"""What Spark Connect needs beside the wheels: of the framework's versions, since they are large."""


def environment_of_a_client(folder: Path) -> Path:
    """The folder, made an environment with the client and other versions of the framework's packages."""
    assert WHEELS.is_dir(), f"no wheels in {WHEELS}: make services"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    for wheel in WHEELS.glob("*.whl"):
        shutil.unpack_archive(wheel, packages, "zip")
    [client] = WHEELS.glob("pyspark_client-*.tar.gz")
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
