"""Spark's settings that refer to secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.errors import ConfigError
from grete.spark.session.referring_settings import for_command_line, resolved

KEY = "spark.hadoop.fs.s3a.access.key"


def test_sparks_context_knows_what_settings_refer_to_and_its_command_line_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("AKIA-hidden\n")
    monkeypatch.setenv("MEMORY", "3g")
    settings = {
        KEY: f"${{file:{tmp_path}/key}}",
        "spark.driver.memory": "${env:MEMORY}",
        "spark.sql.warehouse.dir": "${spark.local.dir}/warehouse",
    }
    known = {"spark.driver.memory": "3g", "spark.sql.warehouse.dir": "${spark.local.dir}/warehouse"}
    assert resolved(settings) == {KEY: "AKIA-hidden", **known}
    assert for_command_line(settings) == known


def test_the_master_is_what_is_written_for_spark_as_for_all_that_asks_where_executors_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MASTER", "local[2]")
    settings = {"spark.master": "${env:MASTER}"}
    assert resolved(settings) == for_command_line(settings) == settings


def test_a_setting_that_refers_to_nothing_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"spark\.hadoop\.fs\.s3a\.access\.key: cannot resolve .*NOBODY_SET_IT"
    ):
        resolved({KEY: "${env:NOBODY_SET_IT}"})
