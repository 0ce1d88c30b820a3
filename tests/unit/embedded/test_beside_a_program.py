"""What a program of somebody else's finds when its stream processors have ended: Spark is not started for it."""

from __future__ import annotations

import os

import pytest

from grete.spark.session import beside_a_program
from grete.spark.session.beside_a_program import leave, take_part


def test_the_programs_variables_come_back_when_the_last_of_its_processors_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # another test's context may run in this process: to these processors there is none, and none to stop
    monkeypatch.setattr(beside_a_program, "context_of_process", lambda: None)
    monkeypatch.setattr(beside_a_program, "stop_what_was_started", lambda: None)
    monkeypatch.setenv("SPARK_BUFFER_SIZE", "131072")
    monkeypatch.delenv("SPARK_AUTH_SOCKET_TIMEOUT", raising=False)
    of_one_job, of_another = object(), object()
    take_part(of_one_job)
    take_part(of_another)
    os.environ["SPARK_BUFFER_SIZE"] = os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = "65536"  # as PySpark does
    leave(of_one_job)
    assert os.environ["SPARK_BUFFER_SIZE"] == "65536", "another one works"
    leave(of_another)
    assert os.environ["SPARK_BUFFER_SIZE"] == "131072"
    assert "SPARK_AUTH_SOCKET_TIMEOUT" not in os.environ
