"""Applications with a process and an environment of their own: nothing of theirs reaches the framework."""

from __future__ import annotations

import ast
import json
import logging
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.isolated_application import CONFIG, COUNTER, Start, answer, run_to_its_end, sent
from tests.support.isolated_application import environment as environment
from tests.support.isolated_application import start as start

import grete
from grete.application.start import API
from grete.cli.main import main
from grete.clock import SystemClock
from grete.errors import ApplicationError, ConfigError, IllegalStateError
from grete.systems.local.system import LocalSystem

# --- environments ---


def test_an_application_has_its_own_versions_of_the_frameworks_packages(
    start: Start, environment: Path
) -> None:
    import orjson

    body = "return [orjson.__version__, apsw.__version__, msgspec.__version__, sys.prefix]"
    text = answer(body, imports="import sys, orjson, apsw, msgspec")
    job = start(text, job__application__environment=str(environment))
    assert sent(job, "k") == [["0.1", "0.1", "0.1", str(environment)]]
    assert orjson.__version__ != "0.1"
    assert sys.prefix != str(environment)


def test_an_environment_needs_no_package_at_all(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    job = start(job__application__environment=str(folder))
    assert sent(job, "a", "b", "a") == [1, 1, 2]


def test_an_environment_without_an_interpreter_is_named(start: Start, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"job\.application\.environment: there is no .*nowhere/bin/python"):
        sent(start(job__application__environment=str(tmp_path / "nowhere")), "k")


def test_the_application_is_imported_in_its_own_process_alone(start: Start, tmp_path: Path) -> None:
    job = start(answer("return os.getpid()", imports="import os"))
    [pid] = set(sent(job, "a", "b"))
    assert pid != os.getpid()
    assert "counting" not in sys.modules
    assert str(tmp_path / "application") not in sys.path


def test_pythonpath_and_the_frameworks_variables_stay_outside(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "GRETE_EXECUTOR_SECRETS", "SOMETHING_ELSE"):
        monkeypatch.setenv(name, "here")
    names = "('PYTHONPATH', 'PYSPARK_PYTHON', 'GRETE_EXECUTOR_SECRETS', 'SOMETHING_ELSE')"
    job = start(answer(f"return [os.environ.get(name) for name in {names}]", imports="import os"))
    assert sent(job, "k") == [[None, None, None, "here"]]


def test_the_doctor_finds_an_application_in_its_environment(
    tmp_path: Path, environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "installed_there.py").write_text("class Task: ...")
    keys = {
        "job.name": "a",
        "task.class": "installed_there:Task",
        "job.application.environment": str(environment),
    }
    config = {**CONFIG, **keys}
    (tmp_path / "job.properties").write_text("\n".join(f"{key}={value}" for key, value in config.items()))
    main(["doctor", "-o", "json", "--config", str(tmp_path / "job.properties")])
    findings = {one["check"]: one for one in json.loads(capsys.readouterr().out)}
    assert findings["application"]["ok"], findings


def test_the_doctor_finds_an_application_in_its_package(
    tmp_path: Path, environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (environment / "manifest.json").write_text("{}")
    (environment / "lib" / "packed.py").write_text("class Task: ...")
    keys = {
        "job.name": "a",
        "task.class": "packed:Task",
        "job.application.path": "",
        "job.application.environment": str(environment),
    }
    config = {**CONFIG, **keys}
    (tmp_path / "job.properties").write_text("\n".join(f"{key}={value}" for key, value in config.items()))
    main(["doctor", "-o", "json", "--config", str(tmp_path / "job.properties")])
    findings = {one["check"]: one for one in json.loads(capsys.readouterr().out)}
    assert findings["application"]["ok"], findings


# --- the modules of the API ---


def test_modules_of_the_framework_cannot_be_imported_there(start: Start) -> None:
    job = start(
        answer("return [name for name in sys.modules if name.startswith('grete')]", imports="import sys")
    )
    [names] = sent(job, "k")
    assert set(names) <= {*API}
    with pytest.raises(ConfigError, match=r"grete\.kafka"):
        sent(start("import grete.kafka\n" + COUNTER), "k")


def test_a_module_named_like_one_of_the_frameworks_is_the_applications(start: Start, tmp_path: Path) -> None:
    (tmp_path / "application" / "grete").mkdir(parents=True)
    (tmp_path / "application" / "grete" / "wire.py").write_text("ANSWER = 'my own wire'\n")
    job = start(answer("return grete.wire.ANSWER", imports="import grete.wire"))
    assert sent(job, "k") == ["my own wire"]


def test_a_module_named_like_one_of_the_apis_is_not_the_applications(start: Start, tmp_path: Path) -> None:
    """The API comes first, so both sides mean the same by its classes; its errors are the same when they cross."""
    (tmp_path / "application" / "grete").mkdir(parents=True)
    for name in ("__init__", "api", "errors"):
        (tmp_path / "application" / "grete" / f"{name}.py").write_text("raise ImportError('not this one')\n")
    body = "raise grete.errors.IllegalStateError(grete.api.__file__)"
    with pytest.raises(IllegalStateError) as raised:
        sent(start(answer(body, imports="import grete.errors")), "k")
    assert str(raised.value) == grete.api.__file__


def test_what_the_application_changes_in_a_module_of_the_api_changes_in_its_process_alone(
    start: Start,
) -> None:
    imports = "import grete.api; grete.api.count = 0"
    body = "grete.api.count += 1; grete.api.StreamTask.marked = grete.errors = None; return grete.api.count"
    assert sent(start(answer(body, imports=imports)), "a", "b") == [1, 2]
    assert not hasattr(grete.api, "count")
    assert not hasattr(grete.api.StreamTask, "marked")
    assert grete.errors is not None


def test_modules_are_what_lies_in_the_folder_itself(start: Start, tmp_path: Path) -> None:
    """No modules in folders below it, nothing that a .pth file names, and no other files."""
    outside, folder = tmp_path / "outside", tmp_path / "application"
    for place in (outside, folder / "below"):
        place.mkdir(parents=True)
        (place / f"of_{place.name}.py").write_text("A = 1\n")
    (folder / "own.pth").write_text(f"{outside}\n")
    (folder / "beside.py").write_text("A = 1\n")
    (folder / "beside_text.txt").write_text("A = 1\n")
    names = ["beside", "of_below", "of_outside", "beside_text", "below.of_below"]
    text = f"return [find_spec(name) is not None for name in {names!r}]"
    job = start(answer(text, imports="from importlib.util import find_spec"))
    assert sent(job, "k") == [[True, False, False, False, True]]


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_folder_of_modules_that_is_none_is_named(start: Start, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "file":
        path.touch()
    with pytest.raises(ConfigError, match=rf"job\.application\.path: there is no folder .*{kind}"):
        sent(start(job__application__path=str(path)), "k")


@pytest.mark.parametrize("name", ["../outside:Task", "..outside:Task", "/outside:Task"])
def test_a_class_cannot_be_named_outside_of_the_folder(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "outside.py").write_text(COUNTER.replace("Counter", "Task"))
    with pytest.raises((ConfigError, ApplicationError), match=r"task\.class"):
        sent(start(task__class=name), "k")


def test_the_api_needs_nothing_but_the_standard_library() -> None:
    """Each module of the list imports the list and the standard library; `orjson` is optional."""
    package = Path(grete.__file__).parent
    outside = set()
    for name in API:
        place = package.joinpath(*name.split(".")[1:])
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        for imported in _imports(ast.parse(file.read_text())):
            top = imported.partition(".")[0]
            if (top == "grete" and imported not in API) or (
                top != "grete" and top not in sys.stdlib_module_names
            ):
                outside.add(imported)
    assert outside == {"orjson"}


def _imports(node: ast.AST) -> Iterator[str]:
    """Modules that are imported when a module is, or its functions are called; not those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.FunctionDef) and child.name == "__getattr__":
            continue  # grete's own, of embedded mode
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            names = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from (name if name in API else str(child.module) for name in names)
        yield from _imports(child)


def test_coordinator_and_container_never_import_the_application(tmp_path: Path) -> None:
    """A whole job in processes of its own, whose application notes in which of them it is imported."""
    (tmp_path / "application").mkdir()
    noting = "import sys; print(sys.orig_argv[1:3], file=open('imported', 'a'))"
    (tmp_path / "application" / "counting.py").write_text(answer("return count", imports=noting))
    run_to_its_end(tmp_path, os.environ)
    [imported] = set((tmp_path / "application" / "imported").read_text().splitlines())
    assert imported == str(["-I", str(Path(grete.__file__).parent / "application" / "start.py")])
    with closing(LocalSystem(tmp_path / "home" / "local", SystemClock())) as system:
        assert [batch.num_rows for _, batch in system.read("out", 0, 0)] == [1]


# --- versions ---


def test_an_application_made_for_another_grete_is_named_at_its_start_and_by_the_doctor(
    start: Start,
    environment: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It gets this one's API all the same; the report has the versions of both processes."""
    caplog.set_level(logging.INFO)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "grete-0.0.9.dist-info").mkdir()
    (environment / "manifest.json").write_text('{"grete": "0.0.8"}')
    job = start(answer("return grete.__version__"), job__application__environment=str(environment))
    assert sent(job, "k") == [grete.__version__]
    for version in ("0.0.8", "0.0.9"):
        assert f"has grete {version}; its application gets the API of this grete" in caplog.text
    assert re.search(r"task\.class=counting:Counter .* is in process \d+, with Python 3", caplog.text)
    config = {**CONFIG, "job.name": "a", "job.application.environment": str(environment)}
    (tmp_path / "job.properties").write_text("\n".join(f"{key}={value}" for key, value in config.items()))
    main(["doctor", "-o", "json", "--config", str(tmp_path / "job.properties")])
    [found] = [one for one in json.loads(capsys.readouterr().out) if one["check"] == "versions"]
    assert not found["ok"]
    python = platform.python_version()
    assert f"framework: grete {grete.__version__}, Python {python} ({sys.executable})" in found["found"]
    assert f"Python {python} ({environment}/bin/python)" in found["found"]
    assert "dist-info has grete 0.0.9" in found["found"]


def test_the_old_name_of_the_switch_is_as_good(start: Start) -> None:
    old = {"samza.cluster.based.job.coordinator.dependency.isolation.enabled": "true"}
    job = start(
        answer("return os.getpid()", imports="import os"), without="job.split.deployment.enabled", **old
    )
    assert sent(job, "k") != [os.getpid()]
