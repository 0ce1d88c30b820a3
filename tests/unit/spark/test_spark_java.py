"""The JVM of the driver starts programs by vfork, where its Java certainly can."""

from __future__ import annotations

from pathlib import Path

import pytest

from grete.spark.session.java_options import quick_starts

VFORK = "-Djdk.lang.Process.launchMechanism=VFORK"


def java(folder: Path, release: str) -> dict[str, str]:
    """An environment with a Java of this release."""
    (folder / "bin").mkdir()
    (folder / "bin/java").touch(mode=0o700)
    (folder / "release").write_text(release)
    return {"JAVA_HOME": str(folder)}


@pytest.mark.parametrize(
    ("release", "given", "options"),
    [
        ('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n', "-Xss4m", f"-Xss4m {VFORK}"),
        ('JAVA_VERSION="25"\n', "", VFORK),
        ('JAVA_VERSION="26.0.1"\n', "-Xss4m", "-Xss4m"),
        ('JAVA_VERSION="1.8.0"\n', "", ""),
        ("no words of a version", "", ""),
        (
            'JAVA_VERSION="17.0.15"\n',
            "-Djdk.lang.Process.launchMechanism=FORK",
            "-Djdk.lang.Process.launchMechanism=FORK",
        ),
    ],
)
def test_programs_are_started_by_vfork_where_java_has_it(
    tmp_path: Path, release: str, given: str, options: str
) -> None:
    assert quick_starts(given, java(tmp_path, release), tmp_path) == options


def test_a_java_that_is_found_by_the_path_counts_as_well(tmp_path: Path) -> None:
    home = java(tmp_path, 'JAVA_VERSION="21.0.2"')["JAVA_HOME"]
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(f"{home}/bin/java")
    assert quick_starts("", {"PATH": str(links)}, tmp_path) == VFORK
    assert quick_starts("", {"PATH": str(tmp_path)}, tmp_path) == ""


def test_where_spark_may_choose_another_java_nothing_is_said(tmp_path: Path) -> None:
    environment = java(tmp_path, 'JAVA_VERSION="17.0.15"')
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/spark-env.sh").touch()
    assert quick_starts("", environment, tmp_path) == ""
    assert quick_starts("", {**environment, "SPARK_CONF_DIR": str(tmp_path)}, tmp_path) == VFORK
