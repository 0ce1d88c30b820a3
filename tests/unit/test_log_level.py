"""How much the process of `grete run` says."""

from __future__ import annotations

import pytest

from grete.cli.run_command import log_level
from grete.errors import ConfigError


def test_a_coordinator_says_as_much_as_the_environment_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRETE_LOG_LEVEL", raising=False)
    assert (log_level(debug=False), log_level(debug=True)) == ("WARNING", "INFO")
    monkeypatch.setenv("GRETE_LOG_LEVEL", "info")
    assert log_level(debug=False) == "INFO"
    monkeypatch.setenv("GRETE_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match="'LOUD' is no level; known are CRITICAL"):
        log_level(debug=False)
