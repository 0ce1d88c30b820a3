"""Which outputs of a pipeline are written in transactions."""

from __future__ import annotations

import logging

import pyspark
import pytest

from grete.config.choices import PipelineDelivery
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.spark.session.defaults import STAGE_ATTEMPTS
from grete.spark.session.settings import session_settings
from grete.spark.sinks.kafka_senders import can_tasks_send
from grete.spark.sinks.kafka_transaction import delivery

TRANSACTIONS, STAMPS, PLAIN = PipelineDelivery.TRANSACTIONS, PipelineDelivery.STAMPS, PipelineDelivery.PLAIN


def of(chosen: str | None, checkpoints_in: str = "kafka") -> PipelineDelivery:
    config = {"systems.kafka.samza.factory": "kafka"}
    if chosen is not None:
        config["systems.kafka.pipeline.delivery"] = chosen
    return delivery(Settings.of(config).system("kafka"), checkpoints_in)


def test_rows_are_in_the_transaction_of_the_checkpoints() -> None:
    assert of(None) is TRANSACTIONS
    assert of("transactions") is TRANSACTIONS


def test_where_the_checkpoints_are_elsewhere_rows_get_stamps_and_the_log_or_an_error_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert of(None, "other") is STAMPS
    assert caplog.messages
    with pytest.raises(ConfigError, match="checkpoints are in 'other'"):
        of("transactions", "other")


@pytest.mark.parametrize(
    ("master", "attempts", "expected"),
    [
        ("local", "1", True),
        ("local[4]", "1", True),
        ("local[*]", "1", True),
        ("local[2,3]", "1", False),
        ("local[2]", "4", False),
        ("local[2]", None, False),
        ("spark://host:7077", "1", False),
        ("yarn", None, False),
    ],
)
def test_tasks_send_where_they_are_in_the_drivers_process_and_none_is_repeated(
    master: str, attempts: str | None, expected: bool
) -> None:
    assert can_tasks_send(master, attempts) is expected


def test_stamps_and_plain_rows_are_had_anywhere_by_asking_for_them() -> None:
    assert of("stamps") is STAMPS
    assert of("plain", "other") is PLAIN


def test_a_pipeline_on_kafka_repeats_no_stage_on_a_local_master_unless_it_is_configured() -> None:
    def attempts(**given: str) -> str | None:
        connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        config = {
            "spark.jars.packages": connector,
            **{key.replace("_", "."): value for key, value in given.items()},
        }
        return session_settings("a", Settings.of(config), "kafka").get(STAGE_ATTEMPTS)

    assert attempts(spark_master="local[2]") == "1"
    assert attempts(spark_master="local[2]", spark_stage_maxConsecutiveAttempts="4") == "4"
    assert attempts(spark_master="spark://host:7077") is None
