"""Pages of a job: what they show, who may see them, and what they do."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.unit.finished_job import CONFIG, config, opened
from tests.unit.pages.browser import form_of

from grete.metadata.history import History, HistoryEvent
from grete.metadata.job_index import jobs
from grete.pages.paging import paged
from grete.pages.site import PAGES
from grete.pages.views import kind_of, pipelines
from grete.pages.watch import Sample, Watch, rate_now, rates

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"
OF_A_JOB = [f"/ui/job/orders/{page}" for page in PAGES]


# --- who may see them ---


@pytest.mark.parametrize("path", ["/ui/", "/ui/events", *OF_A_JOB, "/ui/job/orders/do/stop"])
def test_without_a_session_nothing_is_shown(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert "Sign in" in answer.text
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("path", ["/ui/", *OF_A_JOB, "/ui/job/orders/do/rollback?number=1"])
def test_every_answer_says_what_a_browser_may_do_with_it(operator: TestClient, path: str) -> None:
    headers = operator.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"


def test_another_host_and_another_origin_are_refused(operator: TestClient) -> None:
    assert operator.get("/ui/", headers={"host": "evil.example"}).status_code == 421
    assert operator.get("/ui/", headers={"origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/ui/job/orders/work%0A",
        "/ui/job/orders%2Fwork",
        "/ui//",
        "/ui/job/orders/work/",
        "/UI/",
        "/ui/static/..%2Fsite.py",
    ],
)
def test_another_form_of_a_path_is_no_page(operator: TestClient, path: str) -> None:
    assert operator.get(path).status_code == 404


def test_a_session_that_was_signed_out_is_over(operator: TestClient) -> None:
    page = operator.get("/ui/").text
    key = re.search(r'name="form_key" value="([^"]+)"', page)
    assert key is not None
    operator.post("/ui/sign-out", data={"form_key": "another"})
    assert operator.get("/ui/").status_code == 200
    operator.post("/ui/sign-out", data={"form_key": key[1]})
    assert operator.get("/ui/").status_code == 401


# --- what they show ---


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("", ["finished", "grete run --job orders", "deployment"]),
        ("work", ["Partition 0", "Partition 1", "local.in.1"]),
        ("checkpoints", ["Partition 0", "local.in.0", "lineage/4"]),
        ("config", ["stores.totals.factory", "grete.store.sqlite", "Declares a store of every task"]),
        ("failures", ["no container was started on this machine", "sets nothing aside"]),
        ("streams", ["local.in (input)"]),
        ("coordination", ["nobody leads the job"]),
    ],
)
def test_each_page_shows_its_subject(reader: TestClient, page: str, shown: list[str]) -> None:
    answer = reader.get(f"/ui/job/orders/{page}")
    assert answer.status_code == 200, answer.text
    text = unescape(answer.text)
    assert not [one for one in shown if one not in text]
    assert "may look only" in text


def test_a_configuration_of_5_mb_makes_no_page_of_5_mb(reader: TestClient) -> None:
    with opened() as handle:
        handle.stream.write_config({**CONFIG, "app.table": "x" * 5_000_000}, run_id="run-1", reason="large")
    answer = reader.get("/ui/job/orders/config")
    assert "(5,000,000 characters)" in answer.text
    assert len(answer.content) < 50_000


def test_the_jobs_of_the_home_are_listed(reader: TestClient) -> None:
    text = reader.get("/ui/").text
    assert 'href="job/orders/"' in text
    assert "finished" in text


@pytest.mark.parametrize("page", PAGES)
def test_secrets_are_masked_and_foreign_text_is_only_text(operator: TestClient, page: str) -> None:
    with opened() as handle:
        handle.stream.write_config({**CONFIG, "app.note": HOSTILE}, run_id="run-1", reason=HOSTILE)
        History(handle.stream).append("failed", reason=HOSTILE)
    answer = operator.get(f"/ui/job/orders/{page}")
    assert answer.status_code == 200
    assert "hunter2" not in answer.text
    for part in ("<script>alert", "\x1b", "\u202e"):
        assert part not in answer.text


@pytest.mark.parametrize(
    "path", ["/ui/job/nope/", "/ui/job/orders/nothing", "/ui/job/nope/work", "/ui/job/nope/do/stop"]
)
def test_what_is_not_there_is_said_so(operator: TestClient, path: str) -> None:
    answer = operator.get(path)
    assert answer.status_code == 404
    assert "there is no" in answer.text


def test_a_page_that_is_the_same_is_not_sent_again(reader: TestClient) -> None:
    first = reader.get("/ui/job/orders/config")
    again = reader.get("/ui/job/orders/config", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_an_address_puts_no_words_into_a_page(operator: TestClient, stranger: TestClient) -> None:
    assert "Call" not in operator.get("/ui/job/orders/?done=Call+the+number").text


def test_the_pages_of_one_job_show_and_do_nothing_to_another(operator: TestClient, watch: Watch) -> None:
    watch._jobs = lambda: []  # the job is there, and is not one of those that are looked at
    for path in (*OF_A_JOB, "/ui/job/orders/do/set?key=task.commit.ms&value=1"):
        assert operator.get(path).status_code == 404
    key = re.search(r'name="form_key" value="([^"]+)"', operator.get("/ui/").text)
    assert key is not None
    data = {"key": "task.commit.ms", "value": "7000", "reason": "x", "form_key": key[1]}
    assert operator.post("/ui/job/orders/do/set", data=data).status_code == 404
    assert "task.commit.ms" not in config()


# --- what they do ---


def test_an_action_says_what_it_would_do_and_writes_nothing(operator: TestClient) -> None:
    before = config()
    text = unescape(operator.get("/ui/job/orders/do/set?key=job.container.count&value=2").text)
    assert "grete config set job.container.count=2 --job orders" in text
    assert "restart-container" in text or "job.container.count" in text
    assert config() == before


def test_a_key_is_changed_with_a_reason_that_the_history_of_configurations_has(operator: TestClient) -> None:
    path = "/ui/job/orders/do/set"
    page = operator.get(f"{path}?key=task.commit.ms&value=7000").text
    answer = operator.post(path, data={**form_of(page), "reason": "fewer commits"})
    assert answer.status_code == 303
    assert config()["task.commit.ms"] == "7000"
    with opened() as handle:
        assert (handle.config_generations()[-1].message.values or {})["reason"] == "fewer commits"
    assert "1 key changed" in operator.get(answer.headers["location"].replace("../", "/ui/job/orders/")).text


def test_each_key_has_the_generation_that_has_set_it(operator: TestClient) -> None:
    def generation(key: str) -> str:
        page = operator.get(f"/ui/job/orders/config?q={key}").text
        found = re.search(r'data-label="Generation" class="number">([^<]*)<', page)
        assert found is not None
        return found[1]

    first = generation("stores.totals.factory")
    with opened() as handle:
        handle.stream.change_config({"task.commit.ms": "5000"}, run_id="run-1", reason="fewer commits")
    assert int(generation("task.commit.ms")) > int(first)
    assert generation("stores.totals.factory") == first


def test_a_configuration_is_rolled_back(operator: TestClient) -> None:
    with opened() as handle:
        first = handle.config_generations()[0].number
        handle.stream.change_config({"task.commit.ms": "9000"}, run_id="run-1", reason="a try")
    path = "/ui/job/orders/do/rollback"
    page = operator.get(f"{path}?number={first}").text
    assert "9000" in page
    assert operator.post(path, data={**form_of(page), "reason": "it was better"}).status_code == 303
    assert "task.commit.ms" not in config()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"form_key": "guessed"}, "this session may look only, or the form is of another one"),
        ({"form_key": ""}, "this session may look only, or the form is of another one"),
        ({"reason": "  "}, "Say why"),
        ({"value": "many"}, "task.commit.ms"),
        ({"key": "task.comit.ms"}, "did you mean task.commit.ms"),
        ({"key": " "}, "blank"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    operator: TestClient, change: dict[str, str], says: str
) -> None:
    before = config()
    path = "/ui/job/orders/do/set"
    page = operator.get(f"{path}?key=task.commit.ms&value=7000").text
    answer = operator.post(path, data={**form_of(page), "reason": "a test", **change})
    assert answer.status_code == 409
    assert says in unescape(answer.text)
    assert config() == before


def test_a_session_that_may_look_only_changes_nothing(reader: TestClient) -> None:
    path = "/ui/job/orders/do/set"
    page = reader.get(f"{path}?key=task.commit.ms&value=7000").text
    assert "This session may look only" in page
    key = re.search(r'name="form_key" value="([^"]+)"', page)
    assert key is not None
    data = {"key": "task.commit.ms", "value": "7000", "reason": "x", "form_key": key[1], "seen": ""}
    assert reader.post(path, data=data).status_code == 409
    assert "task.commit.ms" not in config()


def test_the_second_of_two_browsers_is_told_what_has_changed(operator: TestClient) -> None:
    path = "/ui/job/orders/do/set"
    page = operator.get(f"{path}?key=task.commit.ms&value=7000").text
    with opened() as handle:
        handle.stream.change_config({"task.commit.ms": "5000"}, run_id="run-1", reason="the other one")
        History(handle.stream).append("change", reason="the other one")
    data = {**form_of(page), "reason": "mine"}
    answer = operator.post(path, data=data)
    assert answer.status_code == 409
    assert "the other one" in answer.text
    assert config()["task.commit.ms"] == "5000"
    again = operator.post(path, data={**form_of(answer.text), "reason": "mine all the same"})
    assert again.status_code == 303
    assert config()["task.commit.ms"] == "7000"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "application/json"}, b"{}"),
        ({"content-type": "application/x-www-form-urlencoded"}, b"reason=" + b"x" * 70_000),
    ],
)
def test_what_is_no_form_or_too_large_is_refused(
    operator: TestClient, headers: dict[str, str], body: bytes
) -> None:
    assert operator.post("/ui/job/orders/do/stop", content=body, headers=headers).status_code == 409


@pytest.mark.parametrize("action", ["stop", "drain", "step-down", "container?container=0&what=restart"])
def test_nothing_is_asked_of_a_job_that_does_not_run(operator: TestClient, action: str) -> None:
    answer = operator.get(f"/ui/job/orders/do/{action}")
    assert answer.status_code == 409
    assert "is not running" in answer.text


def test_a_rewind_is_worked_out_before_it_is_written(operator: TestClient) -> None:
    path = "/ui/job/orders/do/rewind"
    page = unescape(operator.get(f"{path}?to=oldest&task=&input=&state=keep").text)
    assert "6 records are processed again and 0 are left out, at the next start" in page
    assert "grete checkpoint rewind --to oldest --job orders --execute" in page
    with opened() as handle:
        assert "rewind" not in [one.event for one in handle.history()]
    assert operator.post(path, data={**form_of(page), "reason": "a wrong price"}).status_code == 303
    with opened() as handle:
        last = handle.history()[-1]
    assert (last.event, last.details["reason"]) == ("rewind", "a wrong price")
    for wrong in ("to=yesterday", "to=oldest&task=Nobody", "to=oldest&input=local.out"):
        assert operator.get(f"{path}?{wrong}").status_code == 409


# --- long tables, figures ---


def test_a_page_does_not_wait_for_the_first_look(job: Path) -> None:
    watch = Watch(lambda: jobs(job))  # which nobody has started
    assert [row["state"] for row in watch.rows().values()] == ["being looked at"]


def test_a_long_table_is_searched_sorted_and_cut() -> None:
    rows = [{"task": f"Partition {i}", "behind": i * 7 % 10_000} for i in range(10_000)]
    first = paged(rows, {}, ("task", "behind"))
    assert (len(first.rows), first.total, first.pages) == (100, 10_000, 100)
    most = paged(rows, {"sort": "-behind"}, ("task", "behind")).rows[0]
    assert most["behind"] == 9_999
    found = paged(rows, {"q": "partition 77", "page": "2"}, ("task",))
    assert (found.found, found.number, len(found.rows)) == (111, 2, 11)
    assert paged(rows, {"page": "x", "sort": "nothing"}, ("task",)).number == 1
    assert paged(rows, {"page": "999999"}, ("task",)).number == 100


def test_a_rate_is_what_was_processed_between_looks_and_a_rewind_counts_as_none() -> None:
    samples = [Sample(100.0, 50, 0), Sample(102.0, 30, 20), Sample(104.0, 40, 10), Sample(106.0, 0, 50)]
    assert rates(samples) == [(102.0, 10.0), (104.0, 0.0), (106.0, 20.0)]
    assert rate_now(samples) == pytest.approx(50 / 6)
    unattended = [Sample(0.0, 0, 0), Sample(31.0, 0, 62), Sample(500.0, 0, 90)]
    assert rates(unattended) == [(31.0, 2.0)], (
        "looked at twice a minute while nobody does; over a gap nothing is known"
    )
    assert rate_now(samples[:1]) is None
    assert rate_now([]) is None


@pytest.mark.parametrize(
    ("event", "details", "kind"),
    [
        ("deployment", {}, "start"),
        ("reconfigured", {}, "change"),
        ("rewind", {}, "change"),
        ("container-exited", {"meaning": "killed"}, "failure"),
        ("container-exited", {"meaning": "failed"}, "failure"),
        ("container-exited", {"meaning": "stopped"}, "other"),
        ("container-given-up", {}, "failure"),
        ("stopped", {}, "end"),
        ("drain-requested", {}, "other"),
    ],
)
def test_what_happened_stands_in_the_lane_of_its_kind(event: str, details: dict[str, str], kind: str) -> None:
    assert kind_of(HistoryEvent(1, 1, "host", "user", event, details)) == kind


def test_a_pipeline_is_drawn_from_its_inputs_over_its_state_to_its_outputs(job: Path) -> None:
    figures: dict[str, float | str] = {"state-rows": 12_000.0, "state-bytes": 4.0}
    spark: dict[str, dict[str, float | str]] = {
        "source.kafka.clicks": {"input-rows": 7.0},
        "source.kafka.views": {"input-rows": 9.0},
        "operator.0.windowed": figures,
        "operator.1.<join>": figures,
        "query": {"batch-id": 41.0, "page": "http://driver:4040", "watermark-ms": 1_000.0},
    }
    with opened() as handle:
        handle.stream.change_config({"task.outputs": "local.out"}, run_id="r", reason="")
        drawn = pipelines(handle, {"spark": {"0": spark, "1": None}})
    assert list(drawn) == ["0"]
    label = "Data goes from kafka.clicks, kafka.views to &lt;join&gt; to windowed to local.out"
    assert label in drawn["0"]["graph"]
    assert "state-rows: 12,000" in drawn["0"]["graph"]
    assert drawn["0"]["graph"].count("<path") == 2 + 1 + 1
    assert drawn["0"]["query"] == ["batch-id: 41", "watermark-ms: 1970-01-01 00:00:01"]
    assert drawn["0"]["page"] == "http://driver:4040"
    spark["query"] = {"page": "javascript:alert(1)"}
    with opened() as handle:
        assert pipelines(handle, {"spark": {"0": spark}})["0"]["page"] is None
        assert pipelines(handle, {"spark": None}) == {}
