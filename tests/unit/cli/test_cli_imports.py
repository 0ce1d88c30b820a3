"""The command line starts quickly: what it need not import it does not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grete.model.ids import JobId
from grete.operations import open_job

HEAVY = (
    "pyspark",
    "py4j",
    "pyarrow",
    "pandas",
    "numpy",
    "apsw",
    "urllib3",
    "starlette",
    "uvicorn",
    "yaml",
    "orjson",
    "confluent_kafka",
)
CODE = """
import sys
try:
    {statement}
except SystemExit:
    pass
print(*sorted(sys.modules), file=sys.stderr)
"""


def imported_by(statement: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(statement=statement)], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("statement", ["import grete", "from grete.cli.main import main; main(['--help'])"])
def test_import_and_help_load_no_client_library_at_all(statement: str) -> None:
    assert not imported_by(statement) & set(HEAVY)


@pytest.mark.parametrize(
    "command",
    ["run", "status", "stop", "config", "job-model", "checkpoint", "stream", "history", "doctor", "package"],
)
def test_help_of_a_command_loads_neither_spark_nor_arrow(command: str) -> None:
    modules = imported_by(f"from grete.cli.main import main; main([{command!r}, '--help'])")
    assert not modules & {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "urllib3", "uvicorn"}


def test_a_coordinator_loads_neither_spark_nor_arrow_whatever_system_its_job_is_on() -> None:
    systems = "grete.systems.kafka.system, grete.systems.local.system, grete.coordination.kafka"
    modules = imported_by(f"import grete.assembly, grete.testing.sparkless, {systems}")
    assert not modules & {"pyspark", "py4j", "pyarrow", "pandas", "numpy"}


def test_looking_at_jobs_loads_neither_spark_nor_arrow() -> None:
    modules = imported_by("from grete.cli.main import main; main(['--home', '/nonexistent', 'status'])")
    assert not modules & {"pyspark", "py4j", "pyarrow", "pandas"}


@pytest.mark.parametrize(
    ("command", "most"),
    [("config set task.commit.ms=5000", 200), ("status", 205), ("history", 190), ("stop", 205)],
)
def test_a_command_of_a_job_loads_not_much_more_than_it_needs(home: Path, command: str, most: int) -> None:
    """200 modules of grete's take 0.2 s: a new one is loaded by every command that a person waits for."""
    with open_job(JobId("orders"), must_exist=False) as handle:
        handle.stream.write_config({"job.name": "orders", "task.inputs": "local.in"}, run_id="run-1")
    arguments = ["--home", str(home), *command.split(), "--job", "orders"]
    modules = imported_by(f"from grete.cli.main import main; main({arguments!r})")
    own = sorted(name for name in modules if name.startswith("grete."))
    assert len(own) <= most, own


@pytest.mark.parametrize(
    "command",
    ["status", "history", "stop", "config get", "job-model", "checkpoint show", "logs", "startpoint show"],
)
def test_commands_of_a_job_load_no_web_server(home: Path, command: str) -> None:
    with open_job(JobId("orders"), must_exist=False) as handle:
        handle.stream.write_config({"job.name": "orders", "task.inputs": "local.in"}, run_id="run-1")
    arguments = ["--home", str(home), *command.split(), "--job", "orders"]
    modules = imported_by(f"from grete.cli.main import main; main({arguments!r})")
    assert "apsw" in modules, "the job was opened"
    assert not modules & {
        "starlette",
        "uvicorn",
        "urllib3",
        "anyio",
        "asyncio",
        "pyspark",
        "pyarrow",
        "numpy",
    }
    assert not modules & {"grete.coordinator.monitors.watch", "importlib.metadata"}
