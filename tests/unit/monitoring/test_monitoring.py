"""Alerts and board are made from metrics that there are, and each alert has its section of the runbook."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.unit.finished_job import opened

import grete
from grete.cli.main import main
from grete.coordinator.metadata_manager import MetadataMetrics
from grete.coordinator.metrics import MetricFacts, job_metrics
from grete.model.ids import JobId
from grete.monitoring.alerts import PAGE, TICKET, alerts, rules
from grete.monitoring.board import board, rows
from grete.testing.server_cluster import jars_directory

ROOT = Path(grete.__file__).parents[2]
OF_PROMETHEUS = {"up"}
OF_SPARK = re.compile(r"grete_(gauge|timer)_[a-z_]+")
"""What containers report of a query of Spark's; `tests/unit/spark/test_query_progress.py` has the names."""
Output = pytest.CaptureFixture[str]


def known() -> set[str]:
    facts = MetricFacts(JobId("j"), MetadataMetrics(), 1, None, 0, {}, 0.0, None, 0)
    return {family.name for family in job_metrics(facts)}


def named(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:grete_[a-z_]+|up)\b", expression.replace("grete_jobs", "")))


def test_every_metric_of_an_alert_is_one_of_a_coordinators() -> None:
    names = set().union(*(named(one.expression) for one in alerts()))
    assert names - OF_PROMETHEUS <= known()
    assert len(names) > 12


def test_every_metric_of_the_board_is_one_of_a_coordinators_or_of_sparks() -> None:
    queries = [query for panels in rows().values() for panel in panels for query, _ in panel.queries]
    names = set().union(*map(named, queries))
    own = {name for name in names if not OF_SPARK.fullmatch(name)}
    assert own <= known()
    text = (ROOT / "src/grete/spark/pipeline/query_progress.py").read_text()
    of_spark = {re.sub(r"_(sum|count)$", "", name.split("_", 2)[2]) for name in names - own}
    assert not [name for name in of_spark if f'"{name.replace("_", "-")}"' not in text]


def test_every_alert_has_a_section_of_the_runbook_and_every_section_an_alert() -> None:
    text = (ROOT / "docs/runbook.md").read_text()
    sections = re.findall(r"^## (Grete\w+)$", text, re.MULTILINE)
    assert sections == [one.name for one in alerts()]
    for name in sections:
        section = text.split(f"## {name}\n")[1].split("\n## ")[0]
        assert "**Look**" in section, name
        assert "**Do**" in section, name
        assert "`grete " in section, name


def test_the_rules_name_their_section_and_whom_they_wake() -> None:
    [group] = yaml.safe_load(rules("streams"))["groups"]
    assert group["rules"][0]["expr"] == 'up{job=~"streams(-.+)?"} == 0'
    for rule in group["rules"]:
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in (PAGE, TICKET)
    assert len({rule["alert"] for rule in group["rules"]}) == len(alerts())


def test_the_board_is_whole_and_its_panels_lie_beside_one_another() -> None:
    made = json.loads(board())
    assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert [panel["title"] for panel in made["panels"] if panel["type"] == "row"] == list(rows())


@pytest.mark.nightly  # the schema is compiled from Grafana's Go modules
def test_the_board_is_one_by_grafanas_own_schema() -> None:
    program = jars_directory("GRETE_GRAFANA_SCHEMA", "grafana-schema-0.0.22") / "grafana-schema"

    def read(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program], input=text, capture_output=True, text=True)

    done = read(board())
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(json.loads(board())['panels'])} panels\n"
    assert "panels" in read(board().replace('"legendFormat"', '"legend"')).stderr


def test_the_commands_print_them(capsys: Output) -> None:
    assert main(["metrics", "rules", "--scrape-job", "streams"]) == 0
    assert capsys.readouterr().out == rules("streams")
    assert main(["metrics", "board"]) == 0
    assert capsys.readouterr().out == f"{board()}\n"


def test_a_job_is_scraped_where_it_answers_and_one_that_nobody_knows_is_left_out(
    job: Path, capsys: Output
) -> None:
    assert main(["metrics", "scrape"]) == 0
    said = capsys.readouterr()
    assert yaml.safe_load(said.out) == {"scrape_configs": []}
    assert "orders does not run" in said.err
    with opened() as handle:
        handle.stream.change_config({"job.http.port": "8080", "job.http.host": "::1"}, run_id="r", reason="")
    assert main(["metrics", "scrape"]) == 0
    said = capsys.readouterr()
    [found] = yaml.safe_load(said.out)["scrape_configs"]
    assert found["static_configs"] == [{"targets": ["[::1]:8080"], "labels": {"grete_job": "orders"}}]
    assert found["authorization"]["credentials_file"] == str(job / "jobs" / "orders-1" / "http-metrics-token")
    assert said.err == ""


def test_a_job_that_cannot_be_opened_keeps_no_other_from_being_scraped(
    job: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as handle:
        handle.stream.change_config({"job.http.port": "8080"}, run_id="r", reason="")
    away = JobId("away")
    monkeypatch.setattr("grete.metadata.job_index.submitted_jobs", lambda home: [away])
    assert main(["metrics", "scrape"]) == 0
    said = capsys.readouterr()
    assert [one["job_name"] for one in yaml.safe_load(said.out)["scrape_configs"]] == ["grete-orders-1"]
    assert "away is left out: " in said.err
