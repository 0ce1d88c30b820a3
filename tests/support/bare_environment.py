"""An environment with grete's wheel and what it declares, and nothing else: what is used and not declared is missing.

The wheel is built from this tree. What it depends on is this environment's own, by links, so that nothing is fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
_NOT_OF_A_PACKAGE = ("..", "__pycache__")


@dataclass(frozen=True, slots=True)
class BareEnvironment:
    """An environment in a folder of its own, and a home beside it."""

    folder: Path

    def run(self, *words: str, within: Path, given: str = "") -> subprocess.CompletedProcess[str]:
        """A program of the environment, in a folder; nothing of ours is on its path."""
        ours = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRETE_"))
        }
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            words,
            cwd=within,
            env={**ours, "PATH": path, "GRETE_HOME": str(within / "home")},
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
        )


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree."""
    words = (
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--wheel-dir",
        str(folder),
    )
    subprocess.run([sys.executable, "-m", "pip", *words, str(ROOT)], check=True, timeout=120)
    return next(folder.glob("grete-*.whl"))


def bare_environment(folder: Path, wheel: Path, *extras: str) -> BareEnvironment:
    """An environment with the wheel, and what it declares for itself and these extras."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    words = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *words], check=True, timeout=120)
    packages = next(folder.glob("lib/python*/site-packages"))
    grete = PathDistribution(next(packages.glob("grete-*.dist-info")))
    for needed in _closure(grete, {"", *extras}):
        for name in _top_level(needed):
            (packages / name).symlink_to(Path(str(needed.locate_file(name))))
    assert shutil.which("grete", path=str(folder / "bin"))
    return BareEnvironment(folder)


def _closure(root: Distribution, extras: set[str]) -> Iterator[Distribution]:
    """What a distribution declares for these extras, and what that declares."""
    seen: set[str] = set()
    left = [(root, extras)]
    while left:
        one, wanted = left.pop()
        for requirement in map(Requirement, one.requires or ()):
            marker, name = requirement.marker, re.sub(r"[-_.]+", "-", requirement.name).lower()
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted)
            if applies and name not in seen:
                seen.add(name)
                found = distribution(name)
                left.append((found, {"", *requirement.extras}))
                yield found


def _top_level(package: Distribution) -> set[str]:
    firsts = {path.parts[0] for path in package.files or ()}
    return firsts - set(_NOT_OF_A_PACKAGE)
