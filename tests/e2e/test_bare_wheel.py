"""grete's wheel in environments that have what it declares and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.e2e.test_readme import TUTORIAL, blocks
from tests.support.bare_environment import BareEnvironment, bare_environment, build_wheel

JOB = "job.name=shout\ntask.class=shout:Shout\njob.application.path=.\ntask.inputs=local.lines\n"
CLASS = "import grete\nclass Shout(grete.StreamTask):\n    def process(self, *given): pass\n"
EACH_MODULE = """
import importlib, pkgutil, grete
from grete.errors import MissingExtra

for module in pkgutil.walk_packages(grete.__path__, "grete."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except MissingExtra as error:
        pass
    except ModuleNotFoundError as error:
        print(module.name, error.name)
"""
ROOMS = {
    "pyspark": ("grete.spark.", "grete.deploy."),
    "py4j": ("grete.spark.", "grete.deploy."),
    "pytest": (
        "grete.testing.conformance.",
        "grete.testing.pipeline_fixtures",
        "grete.testing.pytest_fixtures",
    ),
}
"""Modules that nobody imports without these: the command line names the extra, and fixtures are pytest's."""
PROCESSOR = """
import grete, shout
grete.StreamProcessor({"job.name": "shout", "task.inputs": "local.lines"}, shout.Shout).start()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> BareEnvironment:
    """Without any extra."""
    return bare_environment(tmp_path_factory.mktemp("core") / "env", wheel)


@pytest.fixture(scope="module")
def arrow(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> BareEnvironment:
    """With what handles records, and without Spark."""
    return bare_environment(tmp_path_factory.mktemp("arrow") / "env", wheel, "arrow")


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> BareEnvironment:
    """As an author's tests of a task have it."""
    return bare_environment(tmp_path_factory.mktemp("tested") / "env", wheel, "test")


def follow(environment: BareEnvironment, script: str, folder: Path) -> str:
    """The output of a shell."""
    done = environment.run("bash", "-euo", "pipefail", "-c", script, within=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_module_is_imported_with_what_is_declared_or_names_the_extra_that_it_needs(
    core: BareEnvironment, tmp_path: Path
) -> None:
    found = [line.split() for line in follow(core, f"python -c '{EACH_MODULE}'", tmp_path).splitlines()]
    undeclared = [(module, needs) for module, needs in found if not module.startswith(ROOMS.get(needs, ()))]
    assert not undeclared


def test_what_handles_no_records_works_with_the_core_alone(core: BareEnvironment, tmp_path: Path) -> None:
    shown = follow(
        core,
        f"{blocks('A task with state')[0]}"
        "grete stream create local.lines --partitions 2; grete stream list; grete status; grete --version\n"
        "grete migrate samza --check words.properties",
        tmp_path,
    )
    assert "local.lines: created with 2 partitions" in shown
    assert "task.inputs" in shown


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("grete stream append local.lines --lines", "pyarrow", "arrow"),
        ("grete stream dump local.lines", "pyarrow", "arrow"),
        ("grete stream tail --stream local.lines", "pyarrow", "arrow"),
        ("python -m grete.testing.sparkless --config shout.properties --until-drained", "pyarrow", "arrow"),
        ("grete run --config shout.properties", "pyspark", "spark"),
        ("grete run --config shout.properties --dry-run", "pyspark", "spark"),
    ],
)
def test_what_needs_an_extra_names_it_in_one_line_before_anything_begins(
    command: str, module: str, extra: str, core: BareEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "shout.properties").write_text(JOB)
    (tmp_path / "shout.py").write_text(CLASS)
    follow(core, "grete stream create local.lines", tmp_path)
    done = core.run(*command.split(), within=tmp_path, given="never read\n")
    assert (done.returncode, done.stdout) == (2, "")
    said = f"{module} is not installed; install it with: pip install 'grete[{extra}]'\n"
    assert re.fullmatch(rf"(grete|MissingExtra): {re.escape(said)}", done.stderr)
    assert "no jobs" in core.run("grete", "status", within=tmp_path).stdout


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("import grete.testing.job", "arrow"),
        ("import grete.testing.pipeline", "arrow"),
        (PROCESSOR, "spark"),
    ],
)
def test_a_program_that_needs_an_extra_is_told_its_name(
    program: str, extra: str, core: BareEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "shout.py").write_text(CLASS)
    done = core.run("python", "-c", program, within=tmp_path)
    assert re.match(
        r"(grete\.errors\.)?MissingExtra: \w+ is not installed; install it with: "
        rf"pip install 'grete\[{extra}\]'",
        done.stderr.splitlines()[-1],
    )


def test_what_the_tutorial_does_without_spark_works_with_the_extra_of_records(
    arrow: BareEnvironment, tmp_path: Path
) -> None:
    """Its task, with the job run by the kit that does without Spark."""
    make, run = blocks("A task with state")
    (look,) = blocks("Look at it")
    without_spark = run.replace("grete run", "python -m grete.testing.sparkless")
    assert without_spark != run
    shown = follow(
        arrow, f"{make}{without_spark}{look}grete stream tail --stream local.counts -n 1", tmp_path
    )
    assert '"key":"the","value":"2"' in shown
    assert "words  finished" in shown
    assert "tasknames.Partition 0.systems.local.streams.lines.partitions.0 = 1" in shown


def test_the_test_that_the_tutorial_shows_works_with_the_extra_of_records(
    arrow: BareEnvironment, tmp_path: Path
) -> None:
    text = TUTORIAL.read_text().split("## Test it", 1)[1]
    [example] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "example.py").write_text(f"{example}\n\ntest_lines_are_shouted()\n")
    follow(arrow, "python example.py", tmp_path)


def test_a_new_project_of_a_task_is_tested_without_spark(tested: BareEnvironment, tmp_path: Path) -> None:
    shown = follow(
        tested, "grete init rooms --kind task --system local && cd rooms && python -m pytest", tmp_path
    )
    assert "1 passed" in shown


def test_what_the_wheel_has_is_what_the_tree_has(core: BareEnvironment) -> None:
    """Files that are no modules, too: without them all else may work, and one command not."""
    source = Path(__file__).parents[2] / "src"
    there = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    installed = next(core.folder.glob("lib/python*/site-packages"))
    assert [path for path in there if not (installed / path.relative_to(source)).exists()] == []
