"""A board for Grafana: how jobs stand, what containers and tasks do, who leads; each panel from a job's metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT = 24, 8


class Panel(NamedTuple):
    """Lines over time; each query with what its lines are called."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"


def rows() -> dict[str, list[Panel]]:
    """The panels by their row. `$instance` are the coordinators that are chosen on the board."""
    chosen = '{instance=~"$instance"}'

    def per_second(name: str, by: str) -> str:
        return f"sum by ({by}) (rate({name}{chosen}[$__rate_interval]))"

    return {
        "Job": [
            Panel("Records behind", [(f"grete_lag_messages{chosen}", "{{instance}}")]),
            Panel(
                "Records per second",
                [(per_second("grete_process_envelopes_total", "instance"), "{{instance}}")],
            ),
            Panel("Healthy", [(f"grete_job_healthy{chosen}", "{{instance}}")], "bool_yes_no"),
            Panel(
                "Messages set aside per second",
                [(per_second("grete_dead_letters_total", "instance"), "{{instance}}")],
            ),
        ],
        "Containers": [
            Panel(
                "Containers",
                [
                    (f"grete_running_containers{chosen}", "{{instance}} run"),
                    (f"grete_needed_containers{chosen}", "{{instance}} are missing"),
                    (f"grete_failed_containers{chosen}", "{{instance}} failures"),
                ],
            ),
            Panel(
                "Restarts",
                [(f"grete_container_restarts_total{chosen}", "{{instance}} container {{container}}")],
            ),
            Panel(
                "Seconds per commit",
                [
                    (
                        f"rate(grete_commit_seconds_total{chosen}[$__rate_interval]) / "
                        f"rate(grete_commit_calls_total{chosen}[$__rate_interval])",
                        "{{instance}} container {{container}}",
                    )
                ],
                "s",
            ),
            Panel(
                "Silence",
                [(f"grete_heartbeat_age_seconds{chosen}", "{{instance}} container {{container}}")],
                "s",
            ),
        ],
        "Tasks": [
            Panel(
                "Records behind, the ten largest",
                [
                    (
                        f"topk(10, grete_messages_behind_high_watermark{chosen})",
                        "{{task}} {{system}}.{{stream}}.{{partition}}",
                    )
                ],
            ),
            Panel("Free on disk", [(f"grete_disk_free_bytes{chosen}", "{{instance}} {{folder}}")], "bytes"),
            Panel("Partitions of inputs", [(f"grete_partition_count{chosen}", "{{system}}.{{stream}}")]),
        ],
        "Coordination": [
            Panel("Epoch of the leadership", [(f"grete_leader_epoch{chosen}", "{{instance}}")]),
            Panel(
                "Seconds that the lease still holds", [(f"grete_lease_seconds{chosen}", "{{instance}}")], "s"
            ),
            Panel(
                "Changes of the job model",
                [
                    (f"grete_barriers_started_total{chosen}", "{{instance}} began"),
                    (f"grete_barriers_timed_out_total{chosen}", "{{instance}} cut a container off"),
                ],
            ),
            Panel("Seconds of the last change", [(f"grete_rebalance_seconds{chosen}", "{{instance}}")], "s"),
        ],
        "Pipelines": [
            Panel(
                "Input rows per second",
                [
                    (
                        'grete_gauge_input_rows_per_second{instance=~"$instance", group="spark.query"}',
                        "{{instance}} container {{container}}",
                    )
                ],
            ),
            Panel(
                "Rows of state",
                [(f"grete_gauge_state_rows{chosen}", "{{instance}} {{group}}")],
            ),
            Panel(
                "Bytes of state", [(f"grete_gauge_state_bytes{chosen}", "{{instance}} {{group}}")], "bytes"
            ),
            Panel(
                "Milliseconds per batch",
                [
                    (
                        f"rate(grete_timer_batch_ms_sum{chosen}[$__rate_interval]) / "
                        f"rate(grete_timer_batch_ms_count{chosen}[$__rate_interval])",
                        "{{instance}} container {{container}}",
                    )
                ],
                "ms",
            ),
        ],
    }


def board() -> str:
    """The board as JSON, to be imported into Grafana 9 or newer."""
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    instance = {
        "name": "instance",
        "type": "query",
        "label": "Coordinator",
        "datasource": _SOURCE,
        "query": {"query": "label_values(grete_leader_epoch, instance)", "refId": "instances"},
        "definition": "label_values(grete_leader_epoch, instance)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
    made = {
        "title": "grete",
        "uid": "grete-jobs",
        "tags": ["grete"],
        "schemaVersion": 37,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "utc",
        "annotations": {"list": []},
        "templating": {"list": [source, instance]},
        "panels": list(_panels()),
    }
    return json.dumps(made, indent=2)


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for title, panels in rows().items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _place(0, y, _WIDTH, 1),
        }
        y += 1
        for place, panel in enumerate(panels):
            number += 1
            at = _place(_WIDTH // 2 * (place % 2), y, _WIDTH // 2, _HEIGHT)
            yield {"id": number, "gridPos": at, **_panel(panel)}
            if place % 2 or place == len(panels) - 1:
                y += _HEIGHT


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend, "datasource": _SOURCE}
            for number, (query, legend) in enumerate(panel.queries)
        ],
    }
