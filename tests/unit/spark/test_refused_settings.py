"""Settings that Spark refuses at its start."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException

from grete.errors import ConfigError
from grete.model.ending import ExitCode, exit_code
from grete.spark.session.refused_settings import refused_settings

GIVEN = {"spark.serializer": "org.example.Absent", "spark.sql.shuffle.partitions": "many"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "The value 'many' in the config \"spark.sql.shuffle.partitions\" is invalid.",
            "The value 'many' in the config \"spark.sql.shuffle.partitions\" is invalid.",
        ),
        ("org.example.Absent", "org.example.Absent; look at spark.serializer"),
        ("out of range", "out of range; look at the keys spark.*"),
    ],
)
def test_a_setting_that_spark_refuses_is_named_and_not_tried_again(words: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused, refused_settings(GIVEN):
        raise IllegalArgumentException(words)
    assert str(refused.value) == f"Spark refuses its settings: {said}"
    assert exit_code(refused.value) == ExitCode.CONFIG


def test_what_is_no_settings_fault_stays_what_it_is() -> None:
    with pytest.raises(AnalysisException), refused_settings(GIVEN):
        raise AnalysisException("no such table")
