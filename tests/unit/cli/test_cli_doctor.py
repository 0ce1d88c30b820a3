"""Findings of the doctor on a machine that lacks something: each with the way out."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from grete.cli.main import main
from grete.spark.session.versions import class_archive

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _of_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session of Spark that started in this process has set."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def failed(capsys: Output) -> dict[str, str]:
    assert main(["doctor", "-o", "json"]) == 1
    return {f["check"]: f["way_out"] for f in json.loads(capsys.readouterr().out) if not f["ok"]}


def java(folder: Path, version: str, modules: str) -> None:
    (folder / "bin").mkdir()
    script = folder / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\necho {modules}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def test_a_machine_without_java(home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(home))
    assert "install Java 17" in failed(capsys)["java"]


@pytest.mark.parametrize(
    ("version", "modules", "way_out"),
    [
        ("11.0.2", "jdk.incubator.vector", "install Java 17"),
        ("17.0.1", "java.base", "complete runtime"),
    ],
)
def test_a_java_that_spark_cannot_use(
    home: Path,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    modules: str,
    way_out: str,
) -> None:
    java(home, version, modules)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert way_out in failed(capsys)["java"]


def test_a_worker_python_that_is_not_ours(
    home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/sh")
    assert "unset it" in failed(capsys)["PYSPARK_PYTHON"]


@pytest.mark.parametrize("name", ["python", "python3"])
def test_another_name_of_our_python_is_ours(
    home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(Path(sys.executable).with_name(name)))
    assert main(["doctor", "-o", "json"]) == 0
    assert '"check": "PYSPARK_PYTHON"' in capsys.readouterr().out


def test_a_job_that_starts_without_an_archive_of_sparks_classes_is_told_how_to_make_one(
    home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault: the job runs."""
    pipeline = "job.name=pipeline\napp.class=words:Words\ntask.inputs=local.in\n"

    def said(config: str) -> list[str]:
        (home / "job.properties").write_text(config)
        main(["doctor", "-o", "json", "--config", str(home / "job.properties")])
        found = json.loads(capsys.readouterr().out)
        assert all(one["ok"] for one in found if one["check"] == "class archive")
        return [one["found"] for one in found if one["check"] == "class archive"]

    monkeypatch.setattr(sys, "prefix", str(home))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    (none,) = said(pipeline)
    assert "python -m grete.spark.class_archive" in none
    class_archive().touch()
    assert said(pipeline) == [str(class_archive())]
    assert said(f"{pipeline}spark.driver.extraJavaOptions=-Xss2m\n") == [str(class_archive())]
    assert said(f"{pipeline}spark.driver.extraJavaOptions=-Xshare:off\n") == []
    assert said(pipeline.replace("app.class=words", "task.class=words")) == [str(class_archive())]


def test_a_home_that_cannot_be_written(home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("in the way")
    monkeypatch.setenv("GRETE_HOME", str(home / "file" / "home"))
    assert "local folder" in failed(capsys)["GRETE_HOME"]


def test_the_doctor_leaves_nothing_behind(home: Path, capsys: Output) -> None:
    main(["doctor"])
    assert "GRETE_HOME" in capsys.readouterr().out
    assert list(home.iterdir()) == []


APPLICATION = """
from elsewhere import Imported
if True:
    class Words: ...
Other = Words
def made():
    Inner = 1
class Outer:
    Nested = 1
"""


def job_failures(home: Path, capsys: Output, config: str, *words: str) -> dict[str, str]:
    (home / "job.properties").write_text(f"job.name=words\ntask.inputs=local.in\n{config}")
    main(["doctor", "-o", "json", "--config", str(home / "job.properties"), *words])
    found = json.loads(capsys.readouterr().out)
    return {one["check"]: one["found"] for one in found if not one["ok"] and one["check"] != "input"}


@pytest.mark.parametrize("name", ["Words", "Other", "Imported", "made", "Outer.Nested"])
def test_a_class_is_found_in_the_text_of_its_module(home: Path, capsys: Output, name: str) -> None:
    (home / "words.py").write_text(APPLICATION)
    config = f"app.class=words:{name}\njob.application.path={home}\n"
    assert job_failures(home, capsys, config) == {}


@pytest.mark.parametrize("name", ["Wrods", "Inner", "Nested"])
def test_a_class_that_is_not_in_its_module_is_missed(home: Path, capsys: Output, name: str) -> None:
    """It was said to be there, and the job ended at its start."""
    (home / "words.py").write_text(APPLICATION)
    config = f"app.class=words:{name}\njob.application.path={home}\n"
    said = job_failures(home, capsys, config)
    assert said == {"application": f"app.class=words:{name}: {home}/words.py has no {name}"}


def test_modules_in_packages_are_read_and_not_imported(home: Path, capsys: Output) -> None:
    package = home / "shop" / "jobs"
    package.mkdir(parents=True)
    (home / "shop" / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "words.py").write_text("class Words: ...")
    (package / "open.py").write_text("from elsewhere import *")
    (package / "broken.py").write_text("class :")
    path = f"job.application.path={home}\n"
    assert job_failures(home, capsys, f"{path}app.class=shop.jobs.words:Words\n") == {}
    assert job_failures(home, capsys, f"{path}app.class=shop.jobs.open:Words\n") == {}
    said = job_failures(home, capsys, f"{path}app.class=shop.jobs.word:Words\n")
    assert said == {"application": "app.class=shop.jobs.word:Words: no module shop.jobs.word"}
    assert (
        "invalid syntax" in job_failures(home, capsys, f"{path}app.class=shop.jobs.broken:A\n")["application"]
    )


def test_a_secret_that_is_not_here_is_named_with_its_key(home: Path, capsys: Output) -> None:
    (home / "words.py").write_text("class Words: ...")
    (home / "secret").write_text("hunter2")
    config = f"app.class=words:Words\njob.application.path={home}\noutputs.lake.format=jdbc\n"
    config += "outputs.lake.url=jdbc:postgresql://db/lake\noutputs.lake.table=lake\n"
    config += f"outputs.lake.user=${{file:{home}/secret}}\noutputs.lake.password=${{file:{home}/nope}}\n"
    said = job_failures(home, capsys, config)
    assert said["secret"].startswith(f"outputs.lake.password: cannot resolve ${{file:{home}/nope}}")
    assert "hunter2" not in str(said)


def test_a_key_can_be_tried_without_a_file(home: Path, capsys: Output) -> None:
    (home / "words.py").write_text("class Words: ...")
    config = f"app.class=words:Words\njob.application.path={home}\n"
    said = job_failures(home, capsys, config, "--set", "job.container.count=many")
    assert "job.container.count" in said["config"]
    assert main(["doctor", "--set", "a=b"]) == 2
    assert "--set goes with --config" in capsys.readouterr().err
