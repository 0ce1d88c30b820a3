"""What pages say of how a job does: its last hour, what led to a failure, and the work of each task."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from tests.unit.finished_job import JOB, opened

from grete.coordinator.figure_file import FigureFile, Figures
from grete.metadata.history import History, HistoryEvent
from grete.metadata.job_state import write_state
from grete.operations.causes import what_led_to_it
from grete.operations.store_sizes import store_bytes
from grete.pages.watch import Sample, Watch, course_of
from grete.tasks.stores.paths import store_path
from grete.testing.waiting import eventually


def test_the_last_hour_is_there_after_a_restart_of_the_server(reader: TestClient) -> None:
    with opened() as handle:
        file = FigureFile(handle.state_directory)
    now_s = time.time()
    for ago_s, behind in ((7_200, 900), (1_800, 40), (900, 80), (60, 20)):
        file.append(Figures(now_s - ago_s, behind, behind / 2, behind / 10_000))
    page = reader.get("/ui/job/orders/").text
    assert "records behind: at most 80 in the last 29 min" in page
    assert "records per second: at most 40 in the last 29 min" in page
    assert "ms per commit: at most 8 in the last 29 min" in page
    assert re.search(r'Milliseconds per commit</span><span class="value">2<', page)


def test_what_was_seen_goes_on_from_what_was_written() -> None:
    figures = [Figures(at_s, 10, 1.0, 0.5) for at_s in (10.0, 20.0, 30.0, 40.0)]
    samples = [Sample(25.0, 3, 100), Sample(27.0, None, 120)]
    course = course_of(figures, samples, 35.0)
    assert course.behind == [(10.0, 10.0), (20.0, 10.0), (25.0, 3.0)]
    assert course.rate == [(10.0, 1.0), (20.0, 1.0), (27.0, 10.0)]
    assert course.commit_s == [(10.0, 0.5), (20.0, 0.5), (30.0, 0.5)]


def test_what_led_to_a_failure_is_said_in_the_order_it_happened(reader: TestClient) -> None:
    exited = {"container": "0", "exit_code": "3", "meaning": "poison message"}
    with opened() as handle:
        history = History(handle.stream)
        history.append("container-exited", **exited, reason="KeyError: 'old'")
        history.append("attempt")
        for _ in range(2):
            history.append("container-exited", **exited, reason="ValueError no amount (bad.py:4)\n  at once")
        history.append("failed", message="container 0 ended with code 3: ValueError no amount (bad.py:4)")
        rows = handle.history()
    assert what_led_to_it(rows) == [
        "Container 0 failed (exit code 3, poison message): ValueError no amount (bad.py:4) (2 times)",
        "The job failed with it: the container is not started again.",
    ]
    started = HistoryEvent(9, 9, "host", "user", "change", {})
    assert what_led_to_it([*rows, started]) == [], "a start with another configuration is a start"
    assert "What led to it" not in reader.get("/ui/job/orders/").text, "the job has finished"
    with opened() as handle:
        state = handle.state()
        assert state is not None
        write_state(handle.stream, replace(state, state="failed", message="container 0 ended"))
    eventually(
        lambda: "What led to it" in reader.get("/ui/job/orders/").text or None, "a look at the failed job"
    )


@pytest.mark.parametrize(
    ("event", "details", "said"),
    [
        ("container-exited", {"meaning": "stopped", "container": "0"}, []),
        (
            "container-exited",
            {"meaning": "killed", "container": "0", "exit_code": "-9"},
            ["Container 0 failed (exit code -9, killed): it said nothing"],
        ),
        (
            "container-given-up",
            {"container": "1"},
            ["Container 1 is not started again: it has failed too often."],
        ),
        ("config-refused", {"problem": "x is no number"}, ["A configuration was refused: x is no number"]),
        (
            "query-stuck",
            {"container": "2", "problem": "no batch"},
            ["Container 2 makes no progress: no batch"],
        ),
        ("failed", {"message": "no leader"}, ["The job failed: no leader"]),
        ("deployment", {}, []),
    ],
)
def test_each_failure_is_a_sentence(event: str, details: dict[str, str], said: list[str]) -> None:
    assert what_led_to_it([HistoryEvent(1, 1, "host", "user", event, details)]) == said


def test_the_work_of_a_job_has_sizes_of_its_stores_and_rates(reader: TestClient, watch: Watch) -> None:
    with opened() as handle:
        own = store_path(handle.state_directory / "stores", "Partition 0", "totals")
        copies = handle.settings.job.standby_directory(JOB, handle.home)
        copy = store_path(copies / "standby-1", "Partition 0", "totals")
        for path, size in ((own, 5_000), (own.with_name("totals.db-wal"), 1_000), (copy, 2_500)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(size))
        assert store_bytes(handle, "Partition 0", "0") == 6_000
        assert store_bytes(handle, "Standby-Partition 0-1", "0-1") == 2_500
        assert store_bytes(handle, "Partition 1", "0") is None
    page = reader.get("/ui/job/orders/work").text
    assert re.findall(r'data-label="Stores here, kB" class="number">([^<]*)<', page) == ["6", "-"]
    assert watch.partition_rates(JOB)("Partition 0", "local.in.0") is None, "the job does not run"


def test_the_page_of_coordination_has_who_was_kept_from_writing(reader: TestClient) -> None:
    path = "/ui/job/orders/coordination"
    assert "Nobody, as far as the history goes" in reader.get(path).text
    with opened() as handle:
        history = History(handle.stream)
        history.append(
            "container-exited", container="3", exit_code="5", meaning="fenced", reason="epoch 9 is known"
        )
        history.append("container-exited", container="4", exit_code="0", meaning="ended")
        history.append("container-cut-off", container="5")
    page = reader.get(f"{path}?again").text
    fences = page[page.index('aria-label="Fences"') :]
    assert fences.index("container=5") < fences.index("epoch 9 is known"), "the newest first"
    assert "container=4" not in fences
