"""Every file of vectors, which the real Apache Samza 1.8.0 wrote, and proof that the checker can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grete_workbench.vectors import check_file

VECTORS = Path(__file__).parent / "vectors"
FILES = sorted(VECTORS.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_case_of_the_file_passes(path: Path) -> None:
    result = check_file(path)
    assert result.passed, str(result)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_changed_expectation_is_noticed(path: Path, tmp_path: Path) -> None:
    document = json.loads(path.read_bytes())
    changed = [_changed(case) for case in document["cases"]]
    altered = tmp_path / path.name
    altered.write_text(json.dumps({**document, "cases": changed}))
    assert not check_file(altered).passed


EXPECTATIONS = (
    "result", "results", "stream", "value_hex", "value_utf8", "put_each", "hash", "iteration", "steps", "job_models",
    "result_sorted", "json", "hex", "wrote", "active", "read_back", "kafka_key_utf8", "crc32c_utf8_bytes_asInt",
)  # fmt: skip


def _changed(case: dict[str, object]) -> dict[str, object]:
    """The case with one of the things it expects replaced."""
    for name in EXPECTATIONS:
        if name in case and case[name] is not None:
            return {**case, name: _other(case[name])}
    return {**case, "result": "something else"}


def _other(value: object) -> object:
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, list):
        return [_other(value[0]), *value[1:]] if value else ["x"]
    if isinstance(value, dict):
        return {key: _other(inner) for key, inner in value.items()} if value else {"x": "x"}
    return "x"


def run_checker(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grete_workbench.vectors", str(directory)], capture_output=True, text=True
    )


def test_the_command_prints_a_line_a_file_and_ends_with_0_when_all_pass() -> None:
    result = run_checker(VECTORS)
    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert [line.split()[0] for line in lines] == ["passed"] * len(FILES)


def test_the_command_fails_on_an_unknown_file_on_garbage_and_on_nothing(tmp_path: Path) -> None:
    assert run_checker(tmp_path).returncode == 1
    (tmp_path / "java_hash_order.json").write_text("{")
    (tmp_path / "nobody_knows.json").write_text('{"cases": [{}]}')
    result = run_checker(tmp_path)
    assert result.returncode == 1
    assert result.stdout.count("failed") == 2
