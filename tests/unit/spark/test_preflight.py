"""What the look at executors finds, judged without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grete.spark.executors.preflight import Here, environment_hash
from grete.spark.executors.preflight_probe import probe

HERE = Here("3.11.7", "abc", {"grete": "1.0", "orjson": "3.13.0", "pytest": "8"}, frozenset({"orjson"}))


def said(**other: Any) -> dict[str, Any]:
    same = {
        "host": "worker-7",
        "python": "3.11.9",
        "executable": "/opt/python",
        "code": "abc",
        "packages": dict(HERE.packages),
        "folder": "",
    }
    return same | other


def test_an_executor_with_the_same_packages_has_no_problem_and_patches_of_python_make_none() -> None:
    assert HERE.problems(said()) == []


def test_another_minor_version_of_python_is_refused() -> None:
    [problem] = HERE.problems(said(python="3.12.1"))
    assert problem.startswith("has Python 3.12.1 (/opt/python), and the driver 3.11.7")


def test_another_version_of_grete_is_refused_also_when_its_number_is_the_same() -> None:
    [problem] = HERE.problems(said(code="def"))
    assert problem.startswith("has another grete (1.0, code def) than the driver (1.0, code abc)")


def test_packages_that_grete_needs_have_to_be_the_drivers_and_others_make_another_hash_only() -> None:
    other = {**HERE.packages, "orjson": "3.10.0"}
    [problem] = HERE.problems(said(packages=other))
    assert "orjson 3.10.0 (driver 3.13.0)" in problem
    [problem] = HERE.problems(said(packages={"grete": "1.0", "pytest": "8"}))
    assert "orjson missing (driver 3.13.0)" in problem
    more = {**HERE.packages, "pytest": "7"}
    assert HERE.problems(said(packages=more)) == []
    assert environment_hash(more) != environment_hash(HERE.packages)


def test_a_process_has_no_problem_with_itself() -> None:
    here = Here.find()
    assert {"orjson", "apsw", "msgspec"} <= here.needed
    own = probe({"brokers": [], "folder": None})
    assert here.problems(own) == []
    assert here.problems(own | {"code": ""}) != []
    assert replace(here, python="3.9.0").problems(own) != []
