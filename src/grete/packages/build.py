"""Makes the three environments, each as a folder and as the archive of it that executors unpack.

    FOLDER/__samzaFrameworkApi/             lib/grete and the API list; runs in any interpreter
    FOLDER/__samzaFrameworkInfrastructure/  bin/python, bin/run-jc.sh, lib with grete and its locked packages
    FOLDER/__package/                       bin/python, lib with the application's modules and its locked packages
    FOLDER/grete-KIND-HASH.tgz              each of them, named by its content

The interpreter is copied and nothing is a link, so each runs wherever it is unpacked.
Python's own caches are not in it: an interpreter makes them where it runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from grete import __version__
from grete.container.archive import files_of, write_archive
from grete.errors import PackageError
from grete.packages import api_list, manifest
from grete.packages.interpreter import Interpreter, check_environment, copy_interpreter, find_interpreter
from grete.packages.manifest import Manifest, PackageKind
from grete.packages.transport import archive_name

_SHELL = "#!/bin/sh\n"
_RUN_JC = f"""\
# -I: nothing but this package is on the path, whatever the environment and the working folder have.
case "$ENV_SPLIT_DEPLOYMENT_ENABLED $CLUSTER_BASED_JOB_COORDINATOR_DEPENDENCY_ISOLATION_ENABLED" in
*true*) library="${{0%/*}}/../../{PackageKind.APPLICATION.folder}/lib" ;;
*) library="${{0%/*}}/../lib" ;;
esac
export APPLICATION_LIB_DIR="${{APPLICATION_LIB_DIR:-$library}}"
exec "${{0%/*}}/python" -I -m grete.cli.main run "$@"
"""
_SCRIPTS = {"grete": 'exec "${0%/*}/python" -I -m grete.cli.main "$@"\n', "run-jc.sh": _RUN_JC}
_NO_COMMANDS = "The API is imported by the processes of framework and application; it has no commands.\n"
_PIP_TIMEOUT_S = 1800
_SOURCE_ALONE = ("pyspark-client",)
"""Published without a wheel, in Python alone; a pipeline needs it."""


@dataclass(frozen=True, slots=True)
class Built:
    """A package that was built."""

    folder: Path
    archive: Path
    manifest: Manifest


def build_api(into: Path) -> Built:
    """The modules that an application shares with the framework, and their list.

    Raises:
        PackageError: it is there already, or the API imports more than the standard library.
    """
    found = api_list.api()
    if found.others:
        raise PackageError(f"the API imports {', '.join(found.others)}, which applications need not have")
    with _staged(into, PackageKind.API) as stage:
        lib = stage / "lib"
        _copy_modules(found.modules, lib)
        (lib / api_list.NAME).write_text("".join(f"{name}\n" for name in found.public))
        (stage / "bin").mkdir()
        (stage / "bin" / "README").write_text(_NO_COMMANDS)
        return _finish(into, stage, PackageKind.API, None, "", {})


def build_framework(into: Path, lock: Path, python: Path) -> Built:
    """This grete with its packages and an interpreter, and the scripts that start a coordinator.

    Raises:
        PackageError: it is there already, the lock is no lock, or a package cannot be installed.
    """
    with _staged(into, PackageKind.FRAMEWORK) as stage:
        interpreter = _environment(stage, lock, python)
        shutil.copytree(
            api_list.source_folder() / "grete",
            stage / interpreter.site / "grete",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for name, content in _SCRIPTS.items():
            script = stage / "bin" / name
            script.write_text(f"{_SHELL}{content}")
            script.chmod(0o755)
        return _finish_environment(into, stage, PackageKind.FRAMEWORK, interpreter, lock)


def build_application(into: Path, lock: Path, python: Path, application: Path) -> Built:
    """An application's modules with its packages and its interpreter; nothing of the framework.

    Raises:
        PackageError: it is there already, the lock is no lock, or a package cannot be installed.
        ConfigError: the application's folder is not there, or has a link that leaves it.
    """
    with _staged(into, PackageKind.APPLICATION) as stage:
        interpreter = _environment(stage, lock, python)
        for name, path in files_of(application):
            copy = stage / "lib" / name
            if copy.exists() or name.startswith(f"python{interpreter.minor}/"):
                raise PackageError(f"{path} would stand where the interpreter has its files; rename it")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            copy.chmod(0o755 if os.access(path, os.X_OK) else 0o644)
        return _finish_environment(into, stage, PackageKind.APPLICATION, interpreter, lock)


@contextmanager
def _staged(into: Path, kind: PackageKind) -> Iterator[Path]:
    """A folder beside the package's, which is gone afterwards unless it has become the package."""
    if (into / kind.folder).exists():
        raise PackageError(
            f"{into / kind.folder} is there already, and processes may run in it; remove it or name another folder"
        )
    stage = into / f".{kind.folder}.{os.getpid()}"
    stage.mkdir(parents=True)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _environment(stage: Path, lock: Path, python: Path) -> Interpreter:
    names = _locked(lock)
    interpreter = find_interpreter(python)
    copy_interpreter(interpreter, stage)
    if names:
        _install(python, lock, names, stage / interpreter.site)
    return interpreter


def _locked(lock: Path) -> Sequence[str]:
    """The names of all requirements. Each has a version and hashes: how many, and whether they are right, is pip's to
    say.
    """
    try:
        text = lock.read_text("utf-8").replace("\\\n", " ")
    except (OSError, UnicodeDecodeError) as error:
        raise PackageError(f"cannot read the lock {lock}: {error}") from error
    lines = [line for each in text.splitlines() if (line := each.strip()) and not line.startswith("#")]
    loose = [line for line in lines if not re.search(r"==\S+.*\s--hash=sha256:[0-9a-f]{64}", line)]
    if loose:
        raise PackageError(
            f"{lock}: {loose[0][:100]!r} has no version and hash; write the lock with "
            f"`pip-compile --generate-hashes`, without addresses or options"
        )
    return [re.split(r"[^\w.-]", line)[0] for line in lines]


def _install(python: Path, lock: Path, names: Sequence[str], site: Path) -> None:
    """Only wheels: what is compiled on this machine is not what the hashes are of. What is published as source alone
    is made a wheel by the interpreter's own setuptools, since nothing is fetched that has no hash.
    """
    sources = [name for name in names if re.sub(r"[-_.]+", "-", name.lower()) in _SOURCE_ALONE]
    wheels = ",".join([":none:", *(name for name in names if name not in sources)])
    command = [
        str(python),
        "-I",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-input",
    ]
    command += ["--no-deps", "--require-hashes", "--only-binary", wheels, "--no-compile"]
    command += ["--use-pep517", "--no-build-isolation"]
    command += ["--target", str(site), "--upgrade", "--requirement", str(lock)]
    try:
        done = subprocess.run(  # noqa: S603 - pip of the interpreter that the operator named, no shell
            command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackageError(f"cannot install the packages of {lock}: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip()[-2000:]
        lacks = (
            f"; {python} needs setuptools to build {sources[0]}" if sources and "setuptools" in said else ""
        )
        raise PackageError(f"cannot install the packages of {lock}{lacks}: {said}")
    shutil.rmtree(site / "bin", ignore_errors=True)  # scripts, which name this machine's interpreter


def _copy_modules(modules: tuple[str, ...], lib: Path) -> None:
    source = api_list.source_folder()
    for module in modules:
        place = Path(*module.split("."))
        name = place / "__init__.py" if (source / place).is_dir() else place.with_suffix(".py")
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, lib / name)


def _finish_environment(
    into: Path, stage: Path, kind: PackageKind, interpreter: Interpreter, lock: Path
) -> Built:
    check_environment(stage, interpreter)
    installed = {each.name: each.version for each in distributions(path=[str(stage / interpreter.site)])}
    locked = hashlib.sha256(lock.read_bytes()).hexdigest()
    return _finish(into, stage, kind, interpreter, locked, dict(sorted(installed.items())))


def _finish(
    into: Path,
    stage: Path,
    kind: PackageKind,
    interpreter: Interpreter | None,
    lock: str,
    requirements: dict[str, str],
) -> Built:
    """Describe what is staged, pack it, and let it become the package."""
    names = _names(stage)
    made = Manifest(
        kind=kind,
        grete=__version__,
        python=interpreter.version if interpreter else "",
        platform=interpreter.platform if interpreter else "",
        libc=interpreter.libc if interpreter else "",
        lock=lock,
        requirements=requirements,
        files=manifest.files_of(stage, names),
    )
    (stage / manifest.NAME).write_bytes(manifest.encode(made))
    archive = into / archive_name(made)
    write_archive(archive, [(name, stage / name) for name in sorted([*names, manifest.NAME])])
    folder = into / kind.folder
    stage.rename(folder)
    return Built(folder, archive, made)


def _names(stage: Path) -> list[str]:
    """All files, as the names that they have in the archive; a link or a cache would be our own mistake."""
    found = []
    for place, folders, files in os.walk(stage):
        links = [name for name in (*folders, *files) if Path(place, name).is_symlink()]
        assert not links, f"links in {place}: {links}"
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [Path(place, name).relative_to(stage).as_posix() for name in files]
    return found


def default_python() -> Path:
    """The interpreter that runs this."""
    return Path(sys.executable)
