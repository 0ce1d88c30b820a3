"""Whether a job's application is there, as far as that can be seen without running any of it."""

from __future__ import annotations

import ast
import importlib.machinery
import pkgutil
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grete.errors import ConfigError
from grete.finding import Finding

if TYPE_CHECKING:
    from grete.config.settings.job import JobSettings

_PYTHON_S = 30


def application_findings(job: JobSettings) -> Iterator[Finding]:
    """Its class and, where it has an environment of its own, the versions of the two."""
    yield _class(job)
    if job.is_isolated:
        yield _versions(job)


def _class(job: JobSettings) -> Finding:
    """Whether the class can be found; its module is read and not imported, since importing runs it."""
    key = "app.class" if job.is_pipeline else "task.class"
    path = job.application_class or job.task_class or ""
    module, _, name = path.partition(":")
    try:
        spec = _found(module, _places(job))
    except ModuleNotFoundError as error:
        way_out = "set job.application.path to the folder that holds it, or install it"
        return Finding("application", False, f"{key}={path}: no module {error.name}", way_out)
    where = spec.origin or module
    try:
        known = _names(spec)
    except SyntaxError as error:
        return Finding("application", False, f"{key}={path}: {where}: {error}", "correct the module")
    if known is not None and name.partition(".")[0] not in known:
        way_out = f"name a class of it, as {key}={module}:CLASS"
        return Finding("application", False, f"{key}={path}: {where} has no {name or 'class'}", way_out)
    return Finding("application", True, f"{key}={path} from {where}")


def _places(job: JobSettings) -> list[str]:
    folder = job.modules_folder if job.is_isolated else job.application_path
    places = [folder] if folder else []
    if job.is_isolated and job.application_environment:
        places += map(str, Path(job.application_environment).glob("lib/python*/site-packages"))
    return [*places, *sys.path]


def _found(module: str, places: Sequence[str]) -> importlib.machinery.ModuleSpec:
    """The module, found as an import would find it, without the import of the packages that it is in.

    Raises:
        ModuleNotFoundError: it, or a package of its name.
    """
    package, _, _ = module.rpartition(".")
    if package:
        places = list(_found(package, places).submodule_search_locations or ())
    importers = filter(None, map(pkgutil.get_importer, places))
    found = [spec for importer in importers if (spec := importer.find_spec(module, None)) is not None]
    if not found:
        raise ModuleNotFoundError(name=module)
    # a folder without __init__ has no loader, and comes after what has one
    return next((spec for spec in found if spec.loader is not None), found[0])


def _names(spec: importlib.machinery.ModuleSpec) -> set[str] | None:
    """What the module's text gives a name to at its top; None where the text alone does not tell.

    Raises:
        SyntaxError: it is no Python of this version.
    """
    if not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        return None
    found: set[str] = set()
    for node in _at_the_top(ast.parse(spec.loader.get_data(spec.loader.path), spec.loader.path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(one.asname or one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return None if found & {"*", "__getattr__"} else found


def _at_the_top(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those of functions and classes, which have names of their own."""
    yield node
    if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _at_the_top(child)


def _versions(job: JobSettings) -> Finding:
    """Which Python and which grete the framework's processes and the application's have."""
    import grete
    from grete.application.beside import interpreter, other_gretes

    ours = f"framework: grete {grete.__version__}, Python {platform.python_version()} ({sys.executable})"
    try:
        theirs = interpreter(job.application_environment)
        command = [theirs, "-I", "-c", "import platform; print(platform.python_version())"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PYTHON_S)  # noqa: S603
    except (ConfigError, OSError, subprocess.SubprocessError) as error:
        return Finding(
            "versions", False, f"{ours}; application: {error}", "make job.application.environment anew"
        )
    others = [
        f"{place} has grete {version}"
        for version, place in other_gretes(job.application_environment, grete.__version__)
    ]
    found = "; ".join([ours, f"application: the same API, Python {done.stdout.strip()} ({theirs})", *others])
    return Finding(
        "versions", not others, found, "make job.application.environment with this version of grete"
    )
