"""`make audit`: what it finds of what is pinned, and what it says of what it could not look up."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
assert _spec is not None
assert _spec.loader is not None
audit = importlib.util.module_from_spec(_spec)
sys.modules["audit"] = audit  # where its dataclasses look for their module
_spec.loader.exec_module(audit)

TODAY = date(2026, 11, 26)
LISTED = {
    "dated": TODAY,
    "advisory": [{"package": "org.example:driver", "ranges": {"CVE-1": [["2.0", "2.0.10"], ["3.0", "3.1"]]}}],
}
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <properties><driver.version>2.0.9</driver.version></properties>
  <dependencies><dependency>
    <groupId>org.example</groupId><artifactId>driver</artifactId><version>{}</version>
    <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
  </dependency></dependencies>
</project>"""


def found(version: str, package: str = "org.example:driver") -> tuple[str, ...]:
    pinned = audit.Pinned(package, version, "scripts/a/pom.xml")
    return tuple(audit.java([pinned], LISTED, TODAY).found)


@pytest.mark.parametrize(
    ("version", "fixed"), [("2.0", "2.0.10"), ("2.0.9", "2.0.10"), ("3.0.1.Final", "3.1")]
)
def test_a_pinned_version_below_the_one_that_mends_it_is_found(version: str, fixed: str) -> None:
    assert found(version) == (
        f"scripts/a/pom.xml: org.example:driver {version} has CVE-1: take {fixed} or newer",
    )


@pytest.mark.parametrize("version", ["1.9", "2.0.10", "2.0.11", "2.10", "3.1", "3.1.0", "4.0-preview1"])
def test_older_lines_that_never_had_it_and_newer_versions_are_not(version: str) -> None:
    assert not found(version)


def test_another_package_of_that_version_is_not() -> None:
    assert not found("2.0.9", "org.example:other")


@pytest.mark.parametrize("written", ["2.0.9", "${driver.version}"])
def test_a_pom_gives_its_versions_by_number_or_by_property(tmp_path: Path, written: str) -> None:
    (tmp_path / "pom.xml").write_text(POM.format(written))
    assert list(audit.pinned_in(tmp_path / "pom.xml", "here")) == [
        audit.Pinned("org.example:driver", "2.0.9", "here")
    ]


def test_a_version_that_cannot_be_compared_is_no_clean_one(tmp_path: Path) -> None:
    for version in ("${elsewhere}", "LATEST", ""):
        (tmp_path / "pom.xml").write_text(POM.format(version))
        with pytest.raises(ValueError, match="is no version to compare"):
            list(audit.pinned_in(tmp_path / "pom.xml", "here"))


def test_an_old_list_is_said_to_be_old_and_fails_nothing() -> None:
    outcome = audit.java([], LISTED, date(2027, 6, 1))
    assert not outcome.found
    assert "is 187 days old" in outcome.told[0]
    assert not audit.java([], LISTED, TODAY).told


def test_the_list_knows_the_driver_that_jobs_were_given_before() -> None:
    listed = tomllib.loads(audit.LIST.read_text())
    before = audit.Pinned("org.postgresql:postgresql", "42.7.4", "before")
    assert len(audit.java([before], listed, TODAY).found) == 2
    for entry in listed["advisory"]:
        for ranges in entry["ranges"].values():
            assert all(audit.is_before(begin, end) for begin, end in ranges)


def test_every_pom_of_this_repository_is_compared_and_clean() -> None:
    assert audit.main(["--java"]) == 0


_OF_TESTS = ("io.delta:delta-storage", "io.openlineage:openlineage-spark_2.13")
"""Comes with Delta; people choose a listener themselves."""


def test_the_driver_that_jobs_are_given_is_the_one_that_is_compared() -> None:
    poms = audit.pinned_in(ROOT / "scripts/spark-sinks/pom.xml", "")
    libraries = (ROOT / "src/grete/spark/session/libraries.py").read_text()
    for one in poms:
        if one.package not in _OF_TESTS:
            assert f'"{one.package}:{one.version}"' in libraries


def test_what_has_no_maintainer_is_told_and_what_is_gone_has_to_leave_the_list() -> None:
    listed = {"unmaintained": [{"package": "old", "dated": TODAY, "reason": "nothing else does it"}]}
    here = audit.unmaintained(listed, ["new==1 \\\n", "old==2 \\\n"])
    assert not here.found
    assert here.told == ("old has no maintainer (2026-11-26): nothing else does it",)
    assert audit.unmaintained(listed, ["older==2 \\\n"]).found


def test_a_vulnerability_of_a_python_package_is_found_with_what_mends_it() -> None:
    vulnerable = {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
    outcome = audit.python(json.dumps({"dependencies": [vulnerable]}), "")
    assert outcome == audit.Outcome(found=("a 1 has PYSEC-1: take 2",))


def test_a_registry_that_is_away_or_tells_nothing_is_named_and_is_no_failure() -> None:
    away = audit.python("", "ConnectionError: no route")
    assert not away.found
    assert "were not looked up" in away.told[0]
    assert "no route" in away.told[0]
    said = {
        "dependencies": [
            {"name": "a", "skip_reason": "not found"},
            {"name": "b", "version": "1", "vulns": []},
        ]
    }
    silent = audit.python(json.dumps(said), "")
    assert not silent.found
    assert "told nothing of 1 of 2 Python packages (a)" in silent.told[0]
