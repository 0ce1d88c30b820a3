"""Which outputs of a pipeline are written in transactions."""

from __future__ import annotations

import logging

import pyspark
import pytest

from grete.config.choices import PipelineDelivery
from grete.config.settings import Settings
from grete.errors import ConfigError
from grete.spark.session import STAGE_ATTEMPTS, session_settings
from grete.spark.sinks.kafka_transaction import delivery

TRANSACTIONS, STAMPS, PLAIN = PipelineDelivery.TRANSACTIONS, PipelineDelivery.STAMPS, PipelineDelivery.PLAIN


def of(chosen: str | None, checkpoints_in: str, master: str, attempts: str | None) -> PipelineDelivery:
    config = {"systems.kafka.samza.factory": "kafka"}
    if chosen is not None:
        config["systems.kafka.pipeline.delivery"] = chosen
    return delivery(Settings.of(config).system("kafka"), checkpoints_in, master, attempts)


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]"])
def test_with_a_local_master_rows_are_in_the_transaction_of_the_checkpoints(master: str) -> None:
    assert of(None, "kafka", master, "1") is TRANSACTIONS
    assert of("transactions", "kafka", master, "1") is TRANSACTIONS


@pytest.mark.parametrize(
    ("checkpoints_in", "master", "attempts", "reason"),
    [
        ("kafka", "spark://host:7077", "1", "spark.master=spark://host:7077"),
        ("kafka", "local[2,3]", "1", r"local\[2,3\]"),
        ("kafka", "local[2]", "4", "lets Spark repeat tasks"),
        ("kafka", "local[2]", None, "lets Spark repeat tasks"),
        ("other", "local[2]", "1", "checkpoints are in 'other'"),
    ],
)
def test_where_there_can_be_no_transactions_rows_get_stamps_and_the_log_or_an_error_says_why(
    checkpoints_in: str, master: str, attempts: str | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert of(None, checkpoints_in, master, attempts) is STAMPS
    assert caplog.messages
    with pytest.raises(ConfigError, match=reason):
        of("transactions", checkpoints_in, master, attempts)


def test_stamps_and_plain_rows_are_had_anywhere_by_asking_for_them() -> None:
    assert of("stamps", "kafka", "local", "1") is STAMPS
    assert of("plain", "kafka", "local", "1") is PLAIN


def test_a_pipeline_on_kafka_repeats_no_stage_on_a_local_master_unless_it_is_configured() -> None:
    def attempts(**given: str) -> str | None:
        connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        config = {
            "spark.jars.packages": connector,
            **{key.replace("_", "."): value for key, value in given.items()},
        }
        return session_settings("a", config, "kafka").get(STAGE_ATTEMPTS)

    assert attempts(spark_master="local[2]") == "1"
    assert attempts(spark_master="local[2]", spark_stage_maxConsecutiveAttempts="4") == "4"
    assert attempts(spark_master="spark://host:7077") is None
