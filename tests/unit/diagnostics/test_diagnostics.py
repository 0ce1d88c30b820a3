"""Log records and diagnostics in streams (S2-120 to S2-122): what is reported, what never is, and its cost."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from grete.config.redact import MASK, Redactor
from grete.config.rules.validate import check
from grete.config.settings import Settings
from grete.diagnostics.background_writer import BackgroundWriter
from grete.diagnostics.log_event import log_event
from grete.diagnostics.log_handler import StreamLogHandler, log_handler
from grete.diagnostics.observe import observed
from grete.diagnostics.streams import DiagnosticsConfig, diagnostics_config, log_stream_name, redactor_of
from grete.errors import ConfigError, ProcessingError
from grete.model.ids import JobId
from grete.systems.local.log_sink import StreamSink
from grete.systems.local.system import LocalSystem, Message
from grete.testing.clock import ManualClock

JOB = JobId("my-job", "1")
LOGS = "__samza_my_job_1_logs"
CONFIG = {"job.name": "my-job", "task.log4j.system": "local", "my.password": "tell-nobody"}
DIAGNOSTICS = {"job.diagnostics.enabled": "true", "metrics.reporter.diagnosticsreporter.stream": "local.diag"}
log = logging.getLogger("application")


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield


def read(system: LocalSystem, stream: str) -> list[tuple[bytes | None, dict[str, Any]]]:
    return [
        (key, json.loads(value))
        for partition in range(system.partition_count(stream))
        for _, batch in system.read(stream, partition, 0)
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]


def logged(tmp_path: Path, system: LocalSystem, **more: str) -> list[dict[str, Any]]:
    with observed(Settings.of({**CONFIG, **more}), JOB, "samza-container-0", tmp_path):
        log.warning("password is %s", "tell-nobody")
        try:
            raise ValueError("tell-nobody what went wrong")
        except ValueError:
            log.exception("it failed")
    return [event for _, event in read(system, LOGS) if event["logger_name"] == "application"]


def test_the_stream_is_named_as_samza_names_it() -> None:
    assert log_stream_name(JobId("my-job", "a-1")) == "__samza_my_job_a_1_logs"


def test_log_records_are_in_the_stream_in_samzas_fields_under_the_containers_name(
    tmp_path: Path, system: LocalSystem
) -> None:
    warning, failure = logged(tmp_path, system)
    assert {key for key, _ in read(system, LOGS)} == {b"samza-container-0"}
    assert {name: warning[name] for name in ("@version", "level", "logger_name", "thread_name", "ndc")} == {
        "@version": 1,
        "level": "WARN",
        "logger_name": "application",
        "thread_name": "MainThread",
        "ndc": [],
    }
    assert warning["mdc"] == {"containerName": "samza-container-0", "jobName": "my-job", "jobId": "1"}
    assert failure["exception"]["exception_class"] == "builtins.ValueError"
    assert "raise ValueError" in failure["exception"]["stacktrace"]
    assert "file" not in failure


def test_location_is_reported_on_request(tmp_path: Path, system: LocalSystem) -> None:
    warning, _ = logged(tmp_path, system, **{"task.log4j.location.info.enabled": "true"})
    assert (warning["file"], warning["method"]) == ("test_diagnostics.py", "logged")


def test_secrets_are_masked_in_messages_and_in_exceptions(tmp_path: Path, system: LocalSystem) -> None:
    events = logged(tmp_path, system)
    assert "tell-nobody" not in json.dumps(events)
    assert MASK in events[0]["message"]
    assert MASK in events[1]["exception"]["exception_message"]


def test_a_secret_behind_a_reference_is_masked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "from-the-environment")
    line = 'PlainLoginModule required username="ann" password="${env:DB_PASSWORD}";'
    for config in ({"db.password": "${env:DB_PASSWORD}"}, {"systems.k.producer.sasl.jaas.config": line}):
        hide = redactor_of({**config, "other.secret": "${env:NOT_SET_ANYWHERE}"})
        assert hide.everything("it is from-the-environment") == f"it is {MASK}"


def test_the_handler_is_gone_afterwards_and_nothing_is_attached_without_a_system(tmp_path: Path) -> None:
    before = list(logging.getLogger().handlers)
    with observed(Settings.of(CONFIG), JOB, "samza-container-0", tmp_path):
        assert len(logging.getLogger().handlers) == len(before) + 1
    assert logging.getLogger().handlers == before
    with observed(Settings.of({"job.name": "my-job"}), JOB, "samza-container-0", tmp_path):
        assert logging.getLogger().handlers == before


def test_the_stream_hears_info_while_the_terminal_hears_what_it_heard_before(
    tmp_path: Path, system: LocalSystem, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        with observed(Settings.of(CONFIG), JOB, "samza-container-0", tmp_path):
            log.info("for the stream")
        log.info("for nobody")
    assert [event["message"] for _, event in read(system, LOGS)] == ["for the stream"]
    assert caplog.messages == []


class Sink:
    """Logs while it writes, as a system's client does."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, records: Sequence[Message]) -> None:
        logging.getLogger("client").error("sending %d records", len(records))
        self.written += [json.loads(record.value or b"")["message"] for record in records]

    def close(self) -> None:
        logging.getLogger("client").error("closing")


def handler_on(sink: Sink) -> StreamLogHandler:
    writer = BackgroundWriter(lambda: sink, name="test", interval_s=0)
    return StreamLogHandler(writer, DiagnosticsConfig(JOB, "samza-container-0", None, None), Redactor())


def test_what_the_writing_itself_logs_is_never_written() -> None:
    sink = Sink()
    handler = handler_on(sink)
    logging.getLogger().addHandler(handler)
    try:
        log.info("one")
        log.info("two")
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    assert sink.written == ["one", "two"]


class Talkative:
    def __str__(self) -> str:
        log.error("being printed")
        return "printed"


def test_a_record_that_logs_while_it_is_formatted_does_not_recurse() -> None:
    sink = Sink()
    handler = handler_on(sink)
    log.addHandler(handler)
    log.propagate = False  # pytest's own handlers would print it too
    try:
        log.info("%s", Talkative())
    finally:
        log.propagate = True
        log.removeHandler(handler)
        handler.close()
    assert sink.written == ["printed"]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_a_record_that_cannot_be_formatted_is_counted_and_the_log_call_goes_on() -> None:
    sink = Sink()
    handler = handler_on(sink)
    log.addHandler(handler)
    log.propagate = False  # pytest's own handler would raise
    try:
        log.info("%s", Unprintable())
        log.info("next")
    finally:
        log.propagate = True
        log.removeHandler(handler)
        handler.close()
    assert (sink.written, handler.failed) == (["next"], 1)


@pytest.mark.parametrize(
    ("message", "arguments", "text"),
    [
        ("%d of %d", (1,), "'%d of %d' (1,)"),
        ("half a pair \ud800", (), "half a pair ?"),
        ("x" * 300_000, (), "x" * 200_000 + "... (300000 characters)"),
    ],
)
def test_odd_records_still_become_events(message: str, arguments: tuple[object, ...], text: str) -> None:
    record = logging.LogRecord("a", logging.CRITICAL, "", 1, message, arguments, None)
    event = log_event(record, mdc={}, host="h", location=False, hide=Redactor())
    assert (event["message"], event["level"]) == (text, "FATAL")


def test_a_stream_has_a_partition_for_each_container(tmp_path: Path, system: LocalSystem) -> None:
    logged(tmp_path, system, **{"job.container.count": "3"})
    assert system.partition_count(LOGS) == 3


def test_the_streams_own_serde_is_used(tmp_path: Path) -> None:
    settings = Settings.of({**CONFIG, f"streams.{LOGS}.samza.msg.serde": "integer"})
    with pytest.raises(ConfigError, match="'integer' cannot write a log event"):
        log_handler(diagnostics_config(settings, JOB, "samza-container-0", tmp_path), settings)


def test_a_process_without_a_name_cannot_log_to_a_stream(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="container name"):
        diagnostics_config(Settings.of(CONFIG), JOB, "", tmp_path)


def test_logs_can_go_to_a_file_of_their_own(tmp_path: Path) -> None:
    own = {"task.log4j.system": "logs", "systems.logs.path": str(tmp_path / "elsewhere")}
    with observed(Settings.of({**CONFIG, **own}), JOB, "samza-container-0", tmp_path):
        log.error("there")
    elsewhere = LocalSystem(tmp_path / "elsewhere", log_clock())
    assert [event["message"] for _, event in read(elsewhere, LOGS)] == ["there"]
    elsewhere.close()


def log_clock() -> Any:
    from grete.clock import SystemClock

    return SystemClock()


def diagnosed(
    tmp_path: Path, system: LocalSystem, error: BaseException | None = None
) -> list[dict[str, Any]]:
    config = {"job.name": "my-job", "my.password": "tell-nobody", **DIAGNOSTICS}
    try:
        with observed(
            Settings.of(config), JOB, "samza-container-0", tmp_path, tasks=["Partition 0"]
        ) as observer:
            observer.event("container-exited", {"container": "0", "exit-code": "3", "reason": "password=abc"})
            observer.event("attempt", {})
            try:
                raise KeyError("tell-nobody")
            except KeyError:
                log.exception("logged")
            if error is not None:
                raise error
    except ProcessingError:
        pass
    return [event for _, event in read(system, "diag")]


def test_starts_exits_and_exceptions_are_reported_in_samzas_fields(
    tmp_path: Path, system: LocalSystem
) -> None:
    start, stop, failure = diagnosed(tmp_path, system)
    manager = "org.apache.samza.diagnostics.DiagnosticsManager"
    assert start["header"]["job-name"] == "my-job"
    assert start["header"]["container-name"] == "samza-container-0"
    assert start["metrics"][manager]["tasks"] == ["Partition 0"]
    [exited] = stop["metrics"][manager]["stopEvents"]
    assert (exited["processorId"], exited["exitStatus"], exited["reason"]) == ("0", 3, f"password={MASK}")
    [exception] = failure["metrics"]["org.apache.samza.container.SamzaContainerMetrics"]["exceptions"]
    assert exception["exceptionType"] == "builtins.KeyError"
    assert "raise KeyError" in exception["compactExceptionStackTrace"]
    assert exception["mdcMap"]["jobName"] == "my-job"


def test_no_secret_is_reported(tmp_path: Path, system: LocalSystem) -> None:
    assert "tell-nobody" not in json.dumps(diagnosed(tmp_path, system))


def test_an_exception_that_ends_the_process_is_reported_with_its_cause(
    tmp_path: Path, system: LocalSystem
) -> None:
    error = ProcessingError("offset 7")
    error.__cause__ = ZeroDivisionError("division by zero")
    last = diagnosed(tmp_path, system, error)[-1]
    [exception] = last["metrics"]["org.apache.samza.container.SamzaContainerMetrics"]["exceptions"]
    assert exception["exceptionType"] == "grete.errors.ProcessingError"
    assert "ZeroDivisionError: division by zero" in exception["compactExceptionStackTrace"]


def test_a_thousand_exceptions_are_reported_and_no_more(tmp_path: Path, system: LocalSystem) -> None:
    config = {"job.name": "my-job", **DIAGNOSTICS}
    with observed(Settings.of(config), JOB, "samza-container-0", tmp_path):
        for _ in range(1_100):
            log.error("again", exc_info=ValueError("again"))
    assert len(read(system, "diag")) == 1_001


def test_a_process_that_is_not_its_own_reports_no_log_twice(tmp_path: Path, system: LocalSystem) -> None:
    with observed(Settings.of({**CONFIG, **DIAGNOSTICS}), JOB, "samza-job-coordinator", tmp_path):  # noqa: SIM117 - one in one
        with observed(
            Settings.of({**CONFIG, **DIAGNOSTICS}), JOB, "samza-container-0", tmp_path, own_process=False
        ):
            log.error("once", exc_info=ValueError("once"))
    assert [event["message"] for _, event in read(system, LOGS) if event["logger_name"] == "application"] == [
        "once"
    ]
    assert sum("exceptions" in json.dumps(event) for _, event in read(system, "diag")) == 1


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"job.diagnostics.enabled": "true"},
            "Missing required config: metrics.reporter.diagnosticsreporter",
        ),
        ({**DIAGNOSTICS, "metrics.reporter.diagnosticsreporter.stream": "diag"}, "form system.stream"),
        (
            {**DIAGNOSTICS, "metrics.reporter.diagnosticsreporter.stream": "local.in"},
            "reads or writes this stream itself",
        ),
        ({"task.log4j.system": "elsewhere"}, "set systems.elsewhere.samza.factory"),
        (
            {"task.log4j.system": "k", "systems.k.samza.factory": "eventhubs"},
            "logs, diagnostics and metrics go to embedded systems and to Kafka",
        ),
    ],
)
def test_streams_that_cannot_be_written_are_refused_at_submit(config: dict[str, str], problem: str) -> None:
    base = {"job.name": "j", "task.class": "m:T", "task.inputs": "local.in"}
    assert any(problem in error for error in check({**base, **config}).errors)


def test_records_go_when_they_are_older_than_the_streams_retention(tmp_path: Path) -> None:
    hour_ms, clock = 3_600_000, ManualClock()
    config = {**CONFIG, f"streams.{LOGS}.retention.ms": str(24 * hour_ms)}
    target = diagnostics_config(Settings.of(config), JOB, "samza-container-0", tmp_path).logs
    assert target is not None
    sink = StreamSink(target, clock)
    for hour in range(30):
        sink.write([Message(b"k", b"%d" % hour, clock.wall_ms())])
        clock.advance(3600)
    sink.write([Message(b"k", b"30", clock.wall_ms())])
    sink.close()
    system = LocalSystem(tmp_path / "local", clock)
    offsets = system.offsets(LOGS)[0]
    assert (offsets.oldest, offsets.upcoming) == ("6", "31")
    system.close()


def test_a_retention_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"retention\.ms='a week' of .*write digits only"):
        diagnostics_config(
            Settings.of({**CONFIG, f"streams.{LOGS}.retention.ms": "a week"}), JOB, "c", tmp_path
        )
