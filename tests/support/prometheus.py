"""A real Prometheus that scrapes the jobs of the home."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import yaml

from grete.cli.main import main
from grete.monitoring.alerts import rules
from grete.testing.server_cluster import free_ports, jars_directory

PROGRAMS = jars_directory("GRETE_PROMETHEUS", "prometheus") / "usr/bin"


@contextmanager
def running_prometheus(folder: Path) -> Iterator[str]:
    """Scrapes each half second, as `grete metrics scrape` says; its rules wait for nothing. Yields its address."""
    [group] = yaml.safe_load(rules())["groups"]
    group["interval"] = "500ms"
    for rule in group["rules"]:
        rule["for"] = "0s"
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [group]}))
    with redirect_stdout(StringIO()) as said:
        assert main(["metrics", "scrape"]) == 0
    whole = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(folder / "rules.yml")],
        **yaml.safe_load(said.getvalue()),
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(whole))
    [port] = free_ports(1)
    command = [
        str(PROGRAMS / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait()


def asked(prometheus: str, path: str) -> Any:
    """What it answers; nothing where it does not yet."""
    try:
        answer = httpx2.get(f"{prometheus}/api/v1/{path}", trust_env=False)
    except httpx2.TransportError:
        return {}
    return answer.json()["data"] if answer.status_code == 200 else {}  # it has only just started


def firing(prometheus: str) -> set[str]:
    """The names of alerts that fire."""
    found = asked(prometheus, "alerts").get("alerts", ())
    return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}


def fired(prometheus: str, within_s: float) -> set[str]:
    """The names of alerts that have fired within so many seconds, be it for a moment between two questions."""
    query = quote(f"max_over_time(ALERTS{{alertstate='firing'}}[{1 + int(within_s)}s])")
    found = asked(prometheus, f"query?query={query}").get("result", ())
    return {one["metric"]["alertname"] for one in found}


def scraped(prometheus: str, metric: str) -> list[str]:
    """The metric's value in each series."""
    return [one["value"][1] for one in asked(prometheus, f"query?query={metric}").get("result", ())]
