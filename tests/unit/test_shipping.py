"""An executor that comes after the look at all of them."""

from __future__ import annotations

import os
import socket
import sys
import venv
from pathlib import Path

import pytest
from pyspark import SparkFiles

from grete.errors import ConfigError
from grete.spark.preflight_environment import EnvironmentHere, environment_there
from grete.spark.preflight_probe import code_of
from grete.spark.shipping import NOTHING, Shipped


def test_a_share_on_a_machine_with_another_grete_is_refused_with_its_host() -> None:
    assert Shipped(code=code_of("grete")).enter() is None
    with pytest.raises(ConfigError, match=f"^{socket.gethostname()} has another grete .*code 0123"):
        Shipped(code="0123").enter()


def test_a_share_works_in_the_applications_folder_and_still_finds_what_was_named_relative_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "application").mkdir()
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "found_beside.py").write_text("WHERE = 'beside'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, "./beside"])
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", ".")  # as on executors
    assert Shipped("application").enter() == str(tmp_path / "application")
    assert os.getcwd() == str(tmp_path / "application")
    import found_beside  # type: ignore[import-not-found]  # of this test

    assert found_beside.WHERE == "beside"
    assert Shipped("application").enter() == str(tmp_path / "application"), "and so does the next one"


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
