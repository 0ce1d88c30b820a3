"""Versions of Spark: which grete runs on, and that others are refused by name before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.model.streams import StreamSpec
from grete.spark.session.versions import check_installed, installed, refusal
from grete.systems.local.system import LocalSystem

TASK = {"task.class": "m:T", "task.inputs": "local.in"}
PIPELINE = {"app.class": "m:P", "task.inputs": "local.in"}
ON_KAFKA = {"app.class": "m:P", "task.inputs": "kafka.in", "systems.kafka.samza.factory": "kafka"}
Pretend = Callable[..., None]


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Put a pyspark before the one that is installed, with nothing in it but its version, and empty files."""

    def put(version: str, *, files: tuple[str, ...] = ("core/context.py",)) -> None:
        package = tmp_path / "other" / "pyspark"
        (package / "core").mkdir(parents=True)
        for file in ("__init__.py", *files):
            (package / file).touch()
        (package / "version.py").write_text(f'__version__: str = "{version}"\n')
        monkeypatch.syspath_prepend(str(package.parent))

    return put


@pytest.fixture
def config(home: Path, system: LocalSystem) -> Path:
    system.create_stream(StreamSpec("in", 1))
    path = home / "job.properties"
    path.write_text("job.name=words\napp.class=words:Words\ntask.inputs=local.in\n")
    return path


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0"])
def test_the_versions_that_run_everything_are_not_refused(version: str) -> None:
    for job in (TASK, PIPELINE, ON_KAFKA):
        assert not refusal(version, Settings.of(job))


@pytest.mark.parametrize("version", ["4.0.1", "4.1.1"])
def test_older_ones_run_all_but_pipelines_that_read_the_embedded_system(version: str) -> None:
    assert not refusal(version)
    assert not refusal(version, Settings.of(TASK))
    assert not refusal(version, Settings.of(ON_KAFKA))
    why = refusal(version, Settings.of(PIPELINE))
    assert f"pyspark {version}" in why
    assert "local.in" in why
    assert "pip install" in why


@pytest.mark.parametrize("version", ["3.5.8", "4.4.0", "5.0.0", "40.2.0"])
def test_others_run_nothing(version: str) -> None:
    assert f"pyspark {version} is installed, and grete runs on 4.2, 4.3" in refusal(
        version, Settings.of(TASK)
    )


def test_the_installed_version_is_that_of_the_package_which_would_be_imported(pretend: Pretend) -> None:
    assert installed() is not None
    pretend("3.4.1")
    assert installed() == "3.4.1"


@pytest.mark.parametrize("words", [["--config"], ["--dry-run", "--config"]])
@pytest.mark.parametrize(("version", "said"), [("3.5.8", "grete runs on 4.2, 4.3"), ("4.1.1", "(local.in)")])
def test_a_submit_on_another_version_is_refused_and_nothing_is_written(
    config: Path,
    home: Path,
    pretend: Pretend,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    version: str,
    said: str,
) -> None:
    pretend(version)
    assert main(["run", *words, str(config)]) == 2
    error = capsys.readouterr().err
    assert f"pyspark {version} is installed" in error
    assert said in error
    assert not (home / "jobs").exists()
    assert not (home / "local" / "coordinator.db").exists()


def test_the_client_of_spark_connect_alone_is_refused_by_name(
    config: Path, home: Path, pretend: Pretend, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, its container was started nine times, and each start missed a class that the client does not have."""
    pretend("4.2.0", files=())
    assert main(["run", "--config", str(config)]) == 2
    assert "is the client of Spark Connect alone" in capsys.readouterr().err
    assert not (home / "jobs").exists()
    assert main(["doctor", "--config", str(config)]) == 1
    assert "is the client of Spark Connect alone" in capsys.readouterr().out


@pytest.mark.parametrize(("version", "said"), [("3.5.8", "grete runs on 4.2, 4.3"), ("4.1.1", "(local.in)")])
def test_doctor_names_the_version_and_the_way_out(
    config: Path, pretend: Pretend, capsys: pytest.CaptureFixture[str], version: str, said: str
) -> None:
    pretend(version)
    assert main(["doctor", "--config", str(config)]) == 1
    shown = capsys.readouterr().out
    assert f"pyspark {version}" in shown
    assert said in shown
    assert "pip install 'pyspark~=4.2.0'" in shown


@pytest.mark.parametrize(
    ("config", "variable", "said"),
    [
        ({"spark.remote": "sc://server:15002"}, None, "spark.remote=sc://server:15002"),
        ({"spark.master": "sc://server"}, None, "spark.master=sc://server"),
        ({"spark.api.mode": "connect"}, None, "spark.api.mode=connect"),
        ({}, "SPARK_REMOTE", "the variable SPARK_REMOTE"),
        ({}, "SPARK_CONNECT_MODE_ENABLED", "the variable SPARK_CONNECT_MODE_ENABLED"),
    ],
)
def test_spark_connect_is_refused_before_anything_is_written(
    home: Path, config: dict[str, str], variable: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, "1")
    for job in (TASK, PIPELINE):
        with pytest.raises(ConfigError, match=rf"{said}.* asks for Spark Connect.*Remove it"):
            check_installed(Settings.of({"job.name": "words", **job, **config}))
    monkeypatch.undo()
    check_installed(Settings.of({"job.name": "words", **PIPELINE, "spark.api.mode": "classic"}))
