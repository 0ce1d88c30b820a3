"""A copy of a Python interpreter that runs wherever it is put: the program, its library and the standard library."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from grete.errors import PackageError
from grete.packages.elf import look_beside, needed_libraries

_QUERY = """
import json, os, platform, site, sys, sysconfig
names = sysconfig.get_config_vars()
print(json.dumps({
    "version": platform.python_version(), "minor": "%d.%d" % sys.version_info[:2],
    "program": sys._base_executable, "stdlib": sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}),
    "library": names.get("INSTSONAME") or "", "library_folder": names.get("LIBDIR") or "",
    "packages": os.path.basename(site.getsitepackages([sys.base_prefix])[-1]),
    "platform": sysconfig.get_platform(), "libc": " ".join(platform.libc_ver()).strip(),
}))
"""
_PLACES = "import json, sys; print(json.dumps([sys.prefix, *sys.path]))"
_LEFT_OUT = (
    *("__pycache__", "site-packages", "dist-packages", "config-*", "*.a", "*.pyc"),
    *("test", "tests", "idle_test", "_test*.so", "_tkinter*", "_ctypes_test*", "_xxtest*", "xxlimited*"),
    *("idlelib", "tkinter", "turtledemo", "ensurepip"),
)
"""Of the standard library: what belongs to other environments, tests, and what needs a screen."""
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter on this machine, as it describes itself. `libc` is empty where it cannot tell.

    `packages` is the name of its folder of packages: site-packages, of Debian's dist-packages.
    """

    version: str
    minor: str
    program: str
    stdlib: str
    library: str
    library_folder: str
    packages: str
    platform: str
    libc: str

    @property
    def site(self) -> str:
        """Where packages are, below an environment's folder."""
        return f"lib/python{self.minor}/{self.packages}"


def find_interpreter(python: Path) -> Interpreter:
    """What a Python program says of itself; of a virtual environment's, the interpreter that made it.

    Raises:
        PackageError: it cannot be run.
    """
    return Interpreter(**json.loads(_answer(python, _QUERY)))


def copy_interpreter(interpreter: Interpreter, environment: Path) -> None:
    """Copy the program as `bin/python`, and what it needs below `lib`; nothing there is a link.

    Raises:
        PackageError: its copy would look for its library where the original is.
    """
    program, lib = environment / "bin" / "python", environment / "lib"
    program.parent.mkdir(parents=True)
    shutil.copyfile(Path(interpreter.program).resolve(), program)
    program.chmod(0o755)
    shutil.copytree(
        interpreter.stdlib, lib / f"python{interpreter.minor}", ignore=shutil.ignore_patterns(*_LEFT_OUT)
    )
    (environment / interpreter.site).mkdir()
    if interpreter.library in needed_libraries(program):
        shutil.copyfile(
            Path(interpreter.library_folder, interpreter.library), lib / Path(interpreter.library).name
        )
        look_beside(program, "$ORIGIN/../lib")


def check_environment(environment: Path, interpreter: Interpreter) -> None:
    """See that a copied interpreter looks below its own folder alone, and finds its packages.

    Raises:
        PackageError: it looks elsewhere.
    """
    top = environment.resolve()
    prefix, *path = (Path(each).resolve() for each in json.loads(_answer(top / "bin" / "python", _PLACES)))
    outside = [str(each) for each in (prefix, *path) if not each.is_relative_to(top)]
    if outside or top / interpreter.site not in path:
        raise PackageError(
            f"a copy of {interpreter.program} has modules in {', '.join(outside) or 'other folders'} and not in "
            f"its own {interpreter.site} alone; build with one that moves: --python PATH (uv's and pyenv's do)"
        )


def _answer(python: Path, code: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the operator named, no shell
            [str(python), "-I", "-B", "-c", code],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageError(
            f"cannot run {python}: {error}; name a Python interpreter with --python"
        ) from error
    if done.returncode != 0:
        raise PackageError(f"{python} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
