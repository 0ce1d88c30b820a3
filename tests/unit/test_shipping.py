"""An executor that comes after the look at all of them."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from pyspark import SparkFiles

from grete.errors import ConfigError
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


def test_on_this_machine_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert NOTHING.enter() is None
    assert os.getcwd() == str(tmp_path)
