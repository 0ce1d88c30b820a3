"""The checker of vectors on files that it has not seen: other names, orders and fields, and refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.wire.test_vectors import FILES, run_checker

from grete_workbench.vectors import check_file

THROWS = {"throws": "org.apache.samza.SamzaException", "message": "no"}


def cases_of(path: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(path.read_bytes())["cases"]
    return cases


def written(folder: Path, name: str, cases: list[Any]) -> Path:
    path = folder / name
    path.write_text(json.dumps({"about": "made from others", "cases": cases}))
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cases_pass_in_a_file_of_any_name(path: Path, tmp_path: Path) -> None:
    for name in (f"more_{path.stem}.json", f"{path.stem}-2.json", "17.json"):
        result = check_file(written(tmp_path, name, cases_of(path)))
        assert result.passed, str(result)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cases_pass_in_any_order_in_parts_and_with_remarks(path: Path, tmp_path: Path) -> None:
    chance = random.Random(path.stem)
    cases = cases_of(path)
    chance.shuffle(cases)
    remarked = [
        dict(chance.sample(list({**case, "note": "seen"}.items()), len(case) + ("note" not in case)))
        for case in cases
    ]
    half = len(cases) // 2
    parts = [remarked, remarked[half:], remarked[: half or 1], remarked[-1:]]
    if path.stem == "coordinator_managers":  # what some cases read, others of the file have written
        parts = [remarked]
    for part in parts:
        result = check_file(written(tmp_path, path.name, part))
        assert result.passed, str(result)


def refusals() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "coordinator_bootstrap", {"records": [["{", "{}"]], "result": THROWS}
    model = {"config": {}, "streams": "kafka.in:2", "result": THROWS}
    yield (
        "job_model_manager_e2e",
        {"job_name": "j", "steps": [{**model, "config": {"job.container.count": "3"}}]},
    )
    yield (
        "ssp_groupers",
        {"grouper": "Nobody", "streams": [["kafka", "in", 1]], "config": {}, "result": THROWS},
    )
    group = {
        "op": "group",
        "grouper": "GroupByContainerCount",
        "name": "T%d",
        "tasks": 1,
        "container_count": 2,
    }
    yield "task_groupers", {**group, "result": THROWS}
    yield "config", {"op": "typed", "value": "x", "getInt": {**THROWS, "message": "in other words"}}
    yield "startpoints", {"op": "decode startpoint", "utf8": "[]", "result": THROWS}
    yield "job_model", {"op": "read", "json": "[", "result": THROWS}
    yield "checkpoints", {"op": "decode CheckpointV2", "utf8": "\ud800", "result": THROWS}


@pytest.mark.parametrize(
    ("name", "case"), list(refusals()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_where_samza_refuses_a_refusal_passes_and_an_answer_does_not(
    name: str, case: dict[str, Any], tmp_path: Path
) -> None:
    result = check_file(written(tmp_path, f"{name}.json", [case]))
    assert result.passed, str(result)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_answer_where_samza_is_said_to_refuse_is_a_difference(path: Path, tmp_path: Path) -> None:
    answered = [
        {**case, "result": THROWS}
        for case in cases_of(path)
        if "result" in case and "throws" not in str(case["result"])
    ]
    if answered:
        result = check_file(written(tmp_path, path.name, answered))
        assert result.failed == len(answered), str(result)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not a file of cases"),
        ("[" * 100_000, "not a file of cases"),
        ("[]", 'no list "cases" of objects'),
        ('{"cases": {}}', 'no list "cases" of objects'),
        ('{"cases": [1]}', 'no list "cases" of objects'),
        ('{"cases": []}', "there are no cases"),
        ('{"cases": [{"op": "CheckpointV3", "result": 1}]}', "'CheckpointV3'"),
        ('{"cases": [{"op": "CheckpointV1"}]}', "without the field"),
        ('{"cases": [{"op": "Check\\ud800\\u001b[31m\\npoint"}]}', "\\ud800\\x1b[31m\\npoint"),
    ],
)
def test_what_is_no_case_is_reported_in_one_line(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints.json").write_text(content)
    ran = run_checker(tmp_path)
    assert (ran.returncode, ran.stderr) == (1, "")
    [line] = ran.stdout.splitlines()
    assert line.startswith("failed checkpoints.json: ")
    assert says in line


def test_cases_of_an_unknown_operation_are_reported_by_it(tmp_path: Path) -> None:
    written(tmp_path, "nobody_knows.json", [{"op": "Wish", "result": 1}, {"fields": 1}])
    ran = run_checker(tmp_path)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "2 of 2" in ran.stdout
    assert "none for the operation 'Wish'" in ran.stdout
