"""Spark's refusals of a state, in words."""

from __future__ import annotations

import pytest

from grete.spark.failures.error_classes import refused

KEYS = """terminated with exception: [STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match.
Please check number and type of fields.
Existing key_schema=StructType(StructField(k,StringType,true)) and new key_schema=StructType(StructField(window,\
StructType(StructField(start,TimestampType,true),StructField(end,TimestampType,true)),false),\
StructField(price,DecimalType(10,2),true)).
If you want to force running the query without schema validation, please set"""
OPERATORS = """[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Operator name does not match.
Stateful operators in the metadata: [(OperatorId: 0 -> OperatorName: symmetricHashJoin)]; Stateful operators in \
current batch: [(OperatorId: 0 -> OperatorName: dedupe), (OperatorId: 1 -> OperatorName: newInSpark9)]. SQLSTATE"""
GONE = """[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query.
Stateful operators in current batch: [(OperatorId: 0 -> OperatorName: stateStoreSave)]."""
OTHER = "[STATE_STORE_VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED] Too many schemas."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            KEYS,
            "the keys of its state were (k string) and are (window (start timestamp, end timestamp), "
            "price decimal(10,2))",
        ),
        (OPERATORS, "it kept state by a join of streams, and keeps it by dropDuplicates, newInSpark9"),
        (GONE, "it keeps state by an aggregation, and the files of that state are not there"),
        (OTHER, "Too many schemas. (STATE_STORE_VALUE_SCHEMA_EVOLUTION_THRESHOLD_EXCEEDED)"),
    ],
)
def test_what_has_changed_is_said(text: str, words: str) -> None:
    assert words in str(refused(text))


def test_any_other_failure_is_none() -> None:
    assert refused("[DIVIDE_BY_ZERO] Division by zero") is None
