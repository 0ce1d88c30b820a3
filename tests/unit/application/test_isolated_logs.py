"""Applications with a process of their own: their lines are in the job's log, at the levels that are asked for."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from tests.support.isolated_application import Start, answer, run_to_its_end, sent
from tests.support.isolated_application import start as start

from grete.config.log_levels import log_levels
from grete.errors import ConfigError

CHATTY = """
import logging
own, other = logging.getLogger("my.module"), logging.getLogger("my.other")
own.debug("own debug")
own.info("own %s", "info")
other.info("other info")
own.error("own error")
print("printed")
"""


@pytest.mark.parametrize(
    ("explicit", "file", "said"),
    [
        (None, None, ["own info", "other info", "own error"]),
        (
            None,
            'level = "WARNING"\n[loggers]\n"my.module" = "DEBUG"\n',
            ["own debug", "own info", "own error"],
        ),
        ("ERROR", 'level = "DEBUG"\n', ["own error"]),
    ],
    ids=["frameworks-default", "applications-file", "explicit-setting"],
)
def test_one_file_has_the_lines_of_framework_and_application_as_the_first_of_three_asks_for(
    tmp_path: Path, explicit: str | None, file: str | None, said: list[str]
) -> None:
    """What is set explicitly, the application's file, the framework's default."""
    (tmp_path / "application").mkdir()
    (tmp_path / "application" / "counting.py").write_text(answer("return count", imports=CHATTY))
    if file is not None:
        (tmp_path / "application" / "logging.toml").write_text(file)
    environment = {name: value for name, value in os.environ.items() if name != "GRETE_LOG_LEVEL"}
    if explicit is not None:
        environment["GRETE_LOG_LEVEL"] = explicit
    lines = run_to_its_end(tmp_path, environment)
    of_application = [line for line in lines if " my." in line]
    assert [
        line.partition(" my.")[2].split(" ", 1)[1] for line in of_application
    ] == said * 2  # looked at, and run
    if explicit is None and file is None:
        assert any(" INFO grete." in line for line in lines)
        assert any(line.endswith("INFO grete.application.output printed") for line in lines)


def test_an_application_that_sets_its_own_logging_up_leaves_the_frameworks_handlers_alone(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The framework's, such as the one that writes the job's log stream, still get the application's records."""
    caplog.set_level(logging.INFO)
    before = list(logging.getLogger().handlers)
    imports = "import logging; own = logging.getLogger('my.module'); own.addHandler(logging.NullHandler())"
    job = start(answer("own.warning('x %d', count); return count", imports=imports))
    assert sent(job, "a") == [1]
    job.kill()
    assert ("my.module", logging.WARNING, "x 1") in caplog.record_tuples
    assert logging.getLogger().handlers == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("level = [", "logging.toml cannot be read"),
        ('level = "LOUD"', "level is no level; it may have"),
        ('handlers = "mine:Handler"', "handlers is no level; it may have"),
        ('[loggers]\n"a" = "loud"', "a is no level; it may have"),
    ],
)
def test_a_logging_file_says_levels_and_nothing_that_would_be_loaded(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "logging.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        log_levels(str(tmp_path))
