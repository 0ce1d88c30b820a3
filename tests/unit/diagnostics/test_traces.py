"""Spans: how a trace is named, what a receiver gets, and what one that is ill costs."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.otlp_receiver import OtlpReceiver

from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.diagnostics.traces import Tracer
from grete.errors import ConfigError, MissingExtra
from grete.model.ids import JobId
from grete.testing.waiting import eventually
from grete.wire.metric_values import Count
from grete.wire.traces import TraceContext, TracedBatch

JOB = JobId("words")
OF_A_RECORD = f"00-{10:032x}-{3:016x}-01"


def tracer_to(endpoint: str, **more: str) -> Tracer:
    config = {"job.traces.endpoint": endpoint, **{f"job.traces.{name}": text for name, text in more.items()}}
    return Tracer.of(Settings.of(config), JOB, "samza-container-0")


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_a_traceparent_is_read_as_it_is_written(trace_id: int, span_id: int, is_sampled: bool) -> None:
    context = TraceContext(trace_id, span_id, is_sampled)
    assert TraceContext.parse(str(context)) == context


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{1:032x}-{1:016x}-01",  # no version
        f"00-{0:032x}-{1:016x}-01",  # no trace
        f"00-{1:032x}-{0:016x}-01",  # no span
        f"00-{1:032x}-{1:016x}-01-more",  # the first version says no more
        f"00-{1:032X}-{'A' * 16}-01",  # capitals
        f"00-{1:032x}-{1:016x}-1\ud800",
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert TraceContext.parse(text) is None


def test_a_version_to_come_is_read_as_far_as_it_is_known() -> None:
    assert TraceContext.parse(f"cc-{5:032x}-{6:016x}-00-what-comes-next") == TraceContext(5, 6, False)


@given(st.text(max_size=80))
def test_any_text_is_a_context_or_none(text: str) -> None:
    found = TraceContext.parse(text)
    assert found is None or TraceContext.parse(str(found)) == found


def test_a_receiver_gets_a_batch_its_commit_and_the_traces_of_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RECEIVERS_TOKEN", "sesame")
    with OtlpReceiver() as receiver:
        tracer = tracer_to(receiver.endpoint, headers="authorization=Bearer ${env:RECEIVERS_TOKEN}")
        links = (OF_A_RECORD, "no trace", f"00-{11:032x}-{4:016x}-00")
        tracer.batches([TracedBatch(7, f"{99:032x}", 1_000, 1_500, 0.2, 40, links)])
        tracer.close()
        batch, commit = receiver.spans
        assert receiver.authorizations == {"Bearer sesame"}
    assert (batch.service, batch.process, batch.name) == ("words", "samza-container-0", "batch")
    assert (batch.trace, batch.parent, batch.began_ms, batch.ended_ms) == (f"{99:032x}", "", 1_000, 1_500)
    assert batch.attributes == {"grete.batch.id": 7, "grete.batch.records": 40}
    assert batch.links == [f"{10:032x}", f"{11:032x}"]
    assert (commit.name, commit.trace, commit.parent) == ("commit", batch.trace, batch.id)
    assert (commit.began_ms, commit.ended_ms) == (1_300, 1_500)
    assert tracer.metrics == {"traces": {"spans-sent": Count(2, True), "spans-lost": Count(0, True)}}


def test_a_receiver_that_hangs_costs_no_call_and_what_it_does_not_take_is_counted() -> None:
    with OtlpReceiver() as receiver:
        receiver.answers.clear()
        tracer = tracer_to(receiver.endpoint)
        tracer.span("change", 0, 1, {})
        eventually(lambda: receiver.requests == 1, "it is asked")
        start_s = time.monotonic()
        for _ in range(20_000):
            tracer.span("change", 0, 1, {})
        assert time.monotonic() - start_s < 5
        tracer.close()
        assert time.monotonic() - start_s < 15  # what is on its way is not waited for
        lost = tracer.metrics["traces"]["spans-lost"]
        assert isinstance(lost, Count)
        assert lost.value >= 17_000  # some were offered after those in the buffer, and found no room


def test_what_is_refused_is_lost_and_counted_and_the_next_arrive(capfd: pytest.CaptureFixture[str]) -> None:
    with OtlpReceiver() as receiver:
        receiver.status = 400
        tracer = tracer_to(receiver.endpoint)
        tracer.span("change", 0, 1, {})
        eventually(lambda: tracer.metrics["traces"]["spans-lost"] == Count(1, True), "it is counted")
        receiver.status = 200
        tracer.span("rewind", 0, 1, {})
        tracer.close()
        assert [span.name for span in receiver.spans] == ["rewind"]
    said = capfd.readouterr().err
    assert said.count("grete traces: records are lost") == 1
    assert "takes no spans" in said


def test_what_is_secret_is_in_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", "open-sesame-4711")
    with OtlpReceiver() as receiver:
        secret = {"systems.kafka.consumer.sasl.password": "${env:LAKE_KEY}"}
        endpoint = {"job.traces.endpoint": receiver.endpoint}
        tracer = Tracer.of(Settings.of({**endpoint, **secret}), JOB, "samza-container-0")
        said = {"grete.submit.reason": "open-sesame-4711 is the key"}
        tracer.span("failure", 0, 1, said, error="login with open-sesame-4711 failed")
        tracer.close()
        [span] = receiver.spans
    assert "4711" not in f"{span.error} {span.attributes}"
    assert "login with" in span.error


def test_without_an_endpoint_nothing_is_traced() -> None:
    tracer = Tracer.of(Settings.of({}), JOB, "samza-container-0")
    tracer.span("change", 0, 1, {})
    tracer.close()
    assert (tracer.is_on, tracer.metrics) == (False, {})


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"pip install 'grete\[otel\]'"):
        tracer_to("http://collector:4318")


@pytest.mark.parametrize(
    "endpoint",
    [
        "collector:4318",
        "ftp://collector",
        "http://",
        "http://a:b@collector",
        "http://c/?token=1",
        "http://[::1",
    ],
)
def test_an_endpoint_that_is_none_is_refused_before_a_job_starts(endpoint: str) -> None:
    found = check({"job.name": "words", "job.traces.endpoint": endpoint}).errors
    assert any("job.traces.endpoint" in one and "http://collector:4318" in one for one in found)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://traces.example/ingest/otlp", "https://traces.example/ingest/otlp"),
    ],
)
def test_a_path_that_is_named_stays(endpoint: str, url: str) -> None:
    assert Settings.of({"job.traces.endpoint": endpoint}).traces.url == url


def test_headers_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="name=value"):
        _ = Settings.of({"job.traces.headers": "sesame"}).traces.headers
