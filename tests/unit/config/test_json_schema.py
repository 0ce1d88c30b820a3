"""The schema of a configuration: it takes what `grete run` takes, however its names are nested."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from grete.cli.main import main
from grete.config.json_schema import json_schema, properties_comments
from grete.config.keys import KEYS
from grete.config.load import load
from grete.config.rules.validate import check

Output = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]
SCHEMA = json_schema()


def problems(config: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [f"{'.'.join(map(str, one.path))}: {one.message}" for one in validator.iter_errors(config)]


def nested(config: dict[str, str]) -> dict[str, Any]:
    """The same with its names in parts, as far as no name begins another one."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        parts, place = key.split("."), found
        if any(other.startswith(f"{key}.") for other in config):
            found[key] = value
            continue
        for part in parts[:-1]:
            place = place.setdefault(part, {})
        place[parts[-1]] = value
    return found


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").rglob("*.properties")), ids=lambda path: path.name
)
def test_configurations_of_the_examples_have_no_problem(path: Path) -> None:
    config = load([str(path)], {})
    assert problems(dict(config)) == []
    assert problems(nested(dict(config))) == []


@pytest.mark.parametrize(
    "config",
    [
        {"job": {"container": {"count": [2]}}},
        {"task.poison.policy": "ignore"},
        {"task": {"poison": {"policy": "ignore"}}},
        {"job.lineage.state": "lost"},
        {"stores.counts.changelog": {"a": 1}},
    ],
)
def test_a_value_that_a_key_does_not_take_is_found(config: dict[str, Any]) -> None:
    assert problems(config)


def test_keys_of_the_application_are_not_refused() -> None:
    assert problems({"shop.currency": "EUR", "shop": {"limit": 3}}) == []


def test_every_key_has_its_meaning_in_both_forms(capsys: Output) -> None:
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
    assert main(["config", "schema", "--properties"]) == 0
    said = capsys.readouterr().out
    assert said == properties_comments()
    shown = set(re.findall(r"^#([a-z][^ =]*)=", said, re.MULTILINE))
    assert {"job.name", "task.inputs", "stores.%s.changelog"} <= shown
    assert not shown - {key.name for key in KEYS}


def test_the_comments_are_a_properties_file_that_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "all.properties"
    path.write_text(properties_comments() + "job.name=a\ntask.class=a:B\ntask.inputs=local.in\n")
    config = load([str(path)], {})
    assert sorted(config) == ["job.name", "task.class", "task.inputs"]
    assert not check(config).errors
