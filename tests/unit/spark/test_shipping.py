"""An executor that comes after the look at all of them."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkFiles

from grete.errors import ConfigError
from grete.packages.build import build_api
from grete.spark.executors.preflight_environment import EnvironmentHere, environment_there
from grete.spark.executors.preflight_probe import code_of
from grete.spark.executors.shipping import NOTHING, Shipped, ShippedPackage, _sparks_files, _unpacked


def test_a_share_on_a_machine_with_another_grete_is_refused_with_its_host() -> None:
    assert Shipped(code=code_of("grete")).enter() is None
    with pytest.raises(ConfigError, match=f"^{socket.gethostname()} has another grete .*code 0123"):
        Shipped(code="0123").enter()


@pytest.fixture
def on_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of Spark's files on an executor, in which its Python workers begin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, "./beside"])
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", ".")
    _sparks_files.cache_clear()
    yield tmp_path
    _sparks_files.cache_clear()


def test_a_share_works_in_the_applications_folder_and_still_finds_what_was_named_relative_to_the_other(
    on_executor: Path,
) -> None:
    (on_executor / "application").mkdir()
    (on_executor / "beside").mkdir()
    (on_executor / "beside" / "found_beside.py").write_text("WHERE = 'beside'\n")
    assert Shipped("application").enter() == str(on_executor / "application")
    assert os.getcwd() == str(on_executor / "application")
    import found_beside  # type: ignore[import-not-found]  # of this test

    assert found_beside.WHERE == "beside"
    assert Shipped("application").enter() == str(on_executor / "application"), "and so does the next one"


def test_a_worker_that_is_used_again_finds_the_application_and_the_package_that_came_since(
    on_executor: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its folder is that of the application before, and not the one to which Spark's names are relative."""
    built = build_api(tmp_path_factory.mktemp("packages"))
    shutil.copyfile(built.archive, on_executor / "later.package")
    for name in ("first", "second"):
        (on_executor / name).mkdir()
    assert Shipped("first").enter() == str(on_executor / "first")
    later = ShippedPackage("later.package", built.manifest.digest, str(on_executor / "environments"))
    assert Shipped("second", package=later).environment_here() == str(
        on_executor / "environments" / built.manifest.digest[:16]
    )
    assert Shipped("second", package=later).enter() == str(on_executor / "second")


def test_a_package_that_was_damaged_on_a_machine_is_mended_and_the_driver_hears_of_it(
    on_executor: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    built = build_api(tmp_path_factory.mktemp("packages"))
    shutil.copyfile(built.archive, on_executor / "brought.package")
    into = on_executor / "environments"
    module = into / built.manifest.digest[:16] / "lib" / "grete" / "api.py"
    brought = Shipped(package=ShippedPackage("brought.package", built.manifest.digest, str(into)))
    assert environment_there(brought, "")["mended"] == ""
    module.unlink()
    _unpacked.cache_clear()  # the next process
    said = environment_there(brought, "")
    assert (
        said["mended"] == f"{module.parents[2]} is damaged and unpacked again: lib/grete/api.py: is missing"
    )
    assert said["host"] == socket.gethostname()
    assert module.is_file()


def test_an_environment_of_another_python_than_the_driver_has_checked_is_named_with_the_way_out(
    tmp_path: Path,
) -> None:
    venv.create(tmp_path / "environment", with_pip=False)
    here = EnvironmentHere(str(tmp_path / "environment"))
    there = environment_there(Shipped(), str(tmp_path / "environment"))
    assert here.problem(there) == ""
    problem = here.problem(there | {"runs": "Python 3.10 for linux-riscv64"})
    assert problem.startswith("would run the application in Python 3.10 for linux-riscv64, and the driver")
    assert "grete package build application" in problem


def test_an_environment_that_a_machine_lacks_or_cannot_run_is_said_and_not_raised(tmp_path: Path) -> None:
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    there = environment_there(Shipped(), str(tmp_path / "environment"))
    assert "there is no" in there["problem"]
    (tmp_path / "environment" / "bin" / "python").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "environment" / "bin" / "python").chmod(0o755)
    there = environment_there(Shipped(), str(tmp_path / "environment"))
    assert f"cannot run {tmp_path}/environment/bin/python" in there["problem"]
    assert there["host"] == socket.gethostname()


def test_on_this_machine_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert NOTHING.enter() is None
    assert os.getcwd() == str(tmp_path)
