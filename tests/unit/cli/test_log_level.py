"""How much the process of `grete run` logs, and in which form."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from grete.cli.run_command import log_level
from grete.errors import ConfigError
from grete.text_logs import log_to_stderr


def test_a_coordinator_says_as_much_as_the_environment_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRETE_LOG_LEVEL", raising=False)
    assert (log_level(debug=False), log_level(debug=True)) == ("WARNING", "INFO")
    monkeypatch.setenv("GRETE_LOG_LEVEL", "info")
    assert log_level(debug=False) == "INFO"
    monkeypatch.setenv("GRETE_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match="'LOUD' is no level; known are CRITICAL"):
        log_level(debug=False)


def test_what_a_key_or_an_exception_holds_can_neither_speak_to_a_terminal_nor_forge_a_line() -> None:
    program = """
import logging
from grete.text_logs import log_to_stderr
log_to_stderr("INFO")
logging.getLogger("grete").info("key %s", "a\\x1b[2J\\n2026-01-01 00:00:00,000 ERROR grete forged\\r")
try:
    raise KeyError("b\\x07")
except KeyError:
    logging.getLogger("grete").exception("batch failed: %s", ValueError("c\\n2026-01-01 INFO"))
"""
    lines = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    ).stderr.splitlines()
    assert all(line.isprintable() for line in lines)
    begun = [line for line in lines if not line.startswith("    ")]
    assert [line.partition(" grete ")[2] for line in begun] == ["key a\\x1b[2J", "batch failed: c"]
    assert any("KeyError" in line for line in lines)


def test_the_form_of_logs_is_set_once(capfd: pytest.CaptureFixture[str]) -> None:
    before = list(logging.getLogger().handlers)
    log_to_stderr("INFO")  # pytest has set it up
    assert logging.getLogger().handlers == before
