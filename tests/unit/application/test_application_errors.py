"""Applications that cannot be loaded: found out before anything is started for them, and for good."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.config.settings import Settings
from grete.errors import (
    ApplicationError,
    ConfigError,
    GreteError,
    MissingExtra,
    OffsetsRemoved,
    ProcessingError,
)
from grete.model.ending import ExitCode, Failure, exit_code, failure_of, from_document, note, noted_in
from grete.tasks.application import check_application


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(
    ("source", "name", "kind", "says"),
    [
        ("", "no_module_of_mine:Task", ConfigError, "no module 'no_module_of_mine'"),
        ("", "app_a:Task", ConfigError, "no 'Task'"),
        ("Task = dict", "app_b:Task", ConfigError, "not a grete.StreamTask"),
        ("import grete\nclass Task(grete.StreamTask\n", "app_c:Task", ApplicationError, "SyntaxError"),
        ("raise RuntimeError('no licence')", "app_d:Task", ApplicationError, "no licence"),
    ],
)
def test_an_application_that_cannot_be_loaded_is_known_before_a_record_is_read(
    folder: Path, source: str, name: str, kind: type[GreteError], says: str
) -> None:
    if name.startswith("app_"):
        (folder / f"{name.partition(':')[0]}.py").write_text(source)
    config = {"task.class": name, "job.application.path": str(folder)}
    with pytest.raises(kind, match=says) as raised:
        check_application(Settings.of(config))
    assert exit_code(raised.value) in (ExitCode.CONFIG, ExitCode.UNUSABLE)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a"), ExitCode.CONFIG),
        (ApplicationError("a"), ExitCode.UNUSABLE),
        (MissingExtra("pyspark", "spark"), ExitCode.UNUSABLE),
        (ProcessingError("a"), ExitCode.POISON),
        (OffsetsRemoved("a"), ExitCode.OFFSETS_GONE),
        (GreteError("a"), ExitCode.FAILED),
    ],
)
def test_the_code_of_a_container_says_whether_to_try_again(error: GreteError, code: ExitCode) -> None:
    assert exit_code(error) == code


def test_a_failure_is_one_line_whatever_the_error_says() -> None:
    failure = failure_of(ValueError("first \x1b[31m\nsecond"))
    assert str(failure) == "ValueError first \\x1b[31m"


def test_the_first_failure_that_was_noted_stays_and_is_found_in_the_text_of_the_error() -> None:
    nearest = Failure("KeyError", "'page'", "Partition 0", "local.views.0", "4")
    error = ProcessingError("could not process")
    note(error, nearest)
    note(error, Failure("Other"))
    assert failure_of(error) == nearest
    assert noted_in(f"Traceback\n  {error.__notes__[0]}\n\tat org.apache.spark") == nearest
    assert noted_in("grete-failure: no JSON") is None


@pytest.mark.parametrize("document", [None, [], {}, {"type": 1}, "text"])
def test_a_word_that_is_none_is_no_failure(document: object) -> None:
    assert from_document(document) is None


@pytest.mark.parametrize(
    ("java", "failure"),
    [
        (
            "org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] no data source: parket.",
            Failure("SparkClassNotFoundException", "[DATA_SOURCE_NOT_FOUND] no data source: parket."),
        ),
        ("java.lang.NullPointerException", Failure("NullPointerException")),
    ],
)
def test_an_error_of_java_is_named_by_its_own_words_and_not_by_the_call_that_met_it(
    java: str, failure: Failure
) -> None:
    text = f"An error occurred while calling o423.save.\n: {java}\n\tat org.apache.spark.sql.Some.of(Some.scala:1)"
    assert failure_of(RuntimeError(text)) == failure


def test_a_failure_names_the_applications_own_line_and_none_of_a_library() -> None:
    def process(text: str) -> object:
        return json.loads(text)

    with pytest.raises(ValueError, match="Expecting") as met:
        process("no JSON")
    line = process.__code__.co_firstlineno + 1
    assert f" (test_application_errors.py:{line})" in str(failure_of(met.value))
    with pytest.raises(ValueError, match="Expecting") as met:
        json.loads("")
    found = failure_of(met.value.with_traceback(met.value.__traceback__.tb_next))  # type: ignore[union-attr]
    assert found.line == ""
